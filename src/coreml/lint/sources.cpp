#include "coreml/lint/sources.h"

namespace kvtide::coreml {
namespace {

bool axis_inside(const AxisSpan& part, const AxisSpan& whole) {
  if (whole.whole) return true;
  const auto least = [](const Term& a, const Term& b) { return a.base == b.base && a.offset <= b.offset; };
  return least(whole.begin, part.begin) && least(part.end, whole.end);
}

bool axis_apart(const AxisSpan& a, const AxisSpan& b) {
  const auto before = [](const AxisSpan& x, const AxisSpan& y) {
    return x.end.base == y.begin.base && x.end.offset <= y.begin.offset;
  };
  return before(a, b) || before(b, a);
}

}  // namespace

Overlap overlap(const std::vector<AxisSpan>& part, const std::vector<AxisSpan>& whole) {
  if (part.size() != whole.size()) return Overlap::unknown;
  bool inside = true;
  for (std::size_t axis = 0; axis < part.size(); ++axis) {
    if (axis_apart(part[axis], whole[axis])) return Overlap::apart;
    inside = inside && axis_inside(part[axis], whole[axis]);
  }
  return inside ? Overlap::inside : Overlap::unknown;
}

void Sources::add(const Sources& other) {
  inputs.insert(other.inputs.begin(), other.inputs.end());
  values.insert(other.values.begin(), other.values.end());
  states.insert(other.states.begin(), other.states.end());
}

SourceMap::SourceMap(const Function& function, const Indices& indices) : indices_(indices) {
  for (const NamedType& input : function.inputs)
    if (input.type.kind != ValueType::Kind::state) sources_[input.name] = {{input.name}, {input.name}, {}};
  std::map<std::string, std::string> held;  // by state: what was written
  for (const Operation& operation : function.block.operations) {
    if (operation.type == "write_state") {
      const std::string state = bound_name(operation, "input"), data = bound_name(operation, "data");
      writes_.push_back({state, data, &operation, held[state]});
      held[state] = data;
      continue;
    }
    Sources made;
    if (operation.type == "read_state") {
      const std::string state = bound_name(operation, "input");
      read_values_[&operation] = held[state];
      if (held[state].empty())
        made.states.insert(state);
      else
        made = of(held[state]);
    } else if (operation.type == "slice_by_index") {
      made = sources_of_slice(operation);
    } else {
      for (const std::string& name : names_read(operation)) made.add(of(name));
      if (operation.type == "shape")
        made.values.clear(), made.states.clear();  // it is the same whatever they hold
    }
    for (const NamedType& output : operation.outputs) sources_[output.name] = made;
  }
}

const Sources& SourceMap::of(const std::string& name) const {
  static const Sources none;
  const auto found = sources_.find(name);
  return found == sources_.end() ? none : found->second;
}

std::string SourceMap::value_of(const Operation& read) const {
  const auto found = read_values_.find(&read);
  return found == read_values_.end() ? "" : found->second;
}

Sources SourceMap::sources_of_slice(const Operation& slice) const {
  Sources made;
  for (const std::string& name : names_read(slice))
    if (name != bound_name(slice, "x")) made.add(of(name));
  const auto rows = indices_.spans(slice);
  std::string x = bound_name(slice, "x");
  while (rows) {
    const Operation* maker = indices_.producer(x);
    if (maker == nullptr) break;
    if (maker->type == "read_state" && !value_of(*maker).empty()) {
      x = value_of(*maker);
      continue;
    }
    if (maker->type != "slice_update") break;
    const auto updated = indices_.spans(*maker);
    const Overlap how = updated ? overlap(*rows, *updated) : Overlap::unknown;
    if (how == Overlap::unknown) break;
    x = bound_name(*maker, how == Overlap::inside ? "update" : "x");
    if (how == Overlap::inside) break;
  }
  made.add(of(x));
  return made;
}

std::string SourceMap::state_of(const std::string& name) const {
  for (std::string at = name; !at.empty();) {
    const Operation* maker = indices_.producer(at);
    if (maker == nullptr) return "";
    if (maker->type == "read_state") return bound_name(*maker, "input");
    if (maker->type != "slice_update" && maker->type != "identity" && maker->type.substr(0, 7) != "scatter")
      return "";
    at = bound_name(*maker, maker->type.substr(0, 7) == "scatter" ? "data" : "x");
  }
  return "";
}

}  // namespace kvtide::coreml
