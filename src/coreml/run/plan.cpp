#include "coreml/run/plan.h"

#include <algorithm>
#include <unordered_map>

#include "base/mapped_file.h"
#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/run/constants.h"
#include "coreml/run/convert.h"
#include "coreml/run/executor.h"
#include "coreml/run/masked_rows.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

constexpr std::size_t kMostListed = 20;

std::string place_of(const Program& program, const Function& function, const Operation& operation) {
  const bool text = program.source.ends_with(".mil");
  return cat(operation.type, operation.outputs.empty() ? "" : cat(" ", quoted(operation.outputs[0].name)),
             " (", text ? "line " : "operation ", operation.line, text ? "" : cat(" of ", function.name),
             ")");
}

// What of an operation cannot be run; empty: nothing.
std::string missing_in(const Operation& operation, const OperationTable& table) {
  if (!operation.blocks.empty()) return "has blocks of its own";
  if (operation.type == "const") return {};
  static constexpr std::string_view kConstexpr[] = {"constexpr_blockwise_shift_scale",
                                                    "constexpr_affine_dequantize",
                                                    "constexpr_lut_to_dense",
                                                    "constexpr_sparse_to_dense",
                                                    "constexpr_lut_to_sparse",
                                                    "constexpr_sparse_blockwise_shift_scale",
                                                    "constexpr_cast"};
  if (is_constexpr(operation.type))
    return std::find(std::begin(kConstexpr), std::end(kConstexpr), operation.type) == std::end(kConstexpr)
               ? "is not known"
               : "";
  const auto row = table.find(operation.type);
  if (row == table.end()) return "is not known";
  const std::vector<Parameter>& parameters = row->second.parameters;
  for (const Argument& argument : operation.inputs) {
    const bool known = std::any_of(parameters.begin(), parameters.end(), [&](const Parameter& parameter) {
      return parameter.name == argument.name;
    });
    if (!known) return cat("has a parameter ", quoted(argument.name), " that is not known");
  }
  for (const Parameter& parameter : parameters)
    if (parameter.need != Parameter::Need::optional &&
        (operation.input(parameter.name) == nullptr || operation.input(parameter.name)->bindings.empty()))
      return cat("lacks its parameter '", parameter.name, "'");
  for (const NamedType& output : operation.outputs)
    if (output.type.kind != ValueType::Kind::tensor || !runs(output.type.dtype))
      return cat("gives ", name_of(output.type.dtype), ", which no tensor here has");
  return {};
}

class Planner {
 public:
  Planner(Runtime& run, const Program& program, const Function& function, WeightCache& weights)
      : run_(run), program_(program), function_(function), weights_(weights) {}

  Plan plan() {
    plan_.function = function_.name;
    OperationTable table = operation_table();
    const OperationRow own = masked_rows_operation();
    table.emplace(own.type, own);
    plan_.operations = std::make_shared<const OperationTable>(std::move(table));
    take_inputs();
    for (const Operation& operation : function_.block.operations) take(operation);
    for (const std::string& name : function_.block.outputs) {
      const int slot = slot_named(name, "an output");
      plan_.outputs.push_back({name, types_[static_cast<std::size_t>(slot)], slot});
    }
    drop_unused();
    find_masked_writes();
    pack_weights();
    find_last_uses();
    find_in_place();
    drop_constants();
    for (const auto& place : own_) weights_.erase(place);
    return std::move(plan_);
  }

 private:
  int add_slot(const std::string& name, ValueType type, Slot slot = {}) {
    plan_.slots.push_back(std::move(slot));
    types_.push_back(std::move(type));
    const int number = static_cast<int>(plan_.slots.size()) - 1;
    if (!name.empty()) names_[name] = number;
    return number;
  }
  Slot& slot(int number) { return plan_.slots[static_cast<std::size_t>(number)]; }

  int slot_named(const std::string& name, const std::string& what) {
    const auto found = names_.find(name);
    if (found == names_.end())
      throw Error(ErrorCode::bad_format, cat(program_.source, ": ", what, " is bound to ", quoted(name),
                                             ", which nothing before it makes"));
    return found->second;
  }
  int state_named(const std::string& name) const {
    for (std::size_t i = 0; i < plan_.states.size(); ++i)
      if (plan_.states[i].name == name) return static_cast<int>(i);
    return kAbsent;
  }

  void take_inputs() {
    for (const NamedType& input : function_.inputs) {
      if (!runs(input.type.dtype))
        throw Error(ErrorCode::unsupported,
                    cat(program_.source, ": input ", quoted(input.name), " of function ", function_.name,
                        " has type ", name_of(input.type.dtype), ", which no tensor here has"));
      if (input.type.kind == ValueType::Kind::state)
        plan_.states.push_back({input.name, input.type, add_slot("", input.type)});
      else
        plan_.inputs.push_back({input.name, input.type, add_slot(input.name, input.type)});
    }
  }

  // Errors of constants and of what is computed at load say where they are.
  template <class Body>
  void at(const std::string& where, const Body& body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.message().starts_with(where)) throw;
      throw Error(error.code(), cat(program_.source, ": ", where, ": ", error.message()));
    }
  }

  void take(const Operation& operation) {
    const std::string where = place_of(program_, function_, operation);
    at(where, [&] {
      if (operation.type == "const") {
        const Value* value = operation.attribute("val");
        if (value == nullptr || operation.outputs.size() != 1)
          throw Error(ErrorCode::bad_format, "a constant without 'val'");
        add_slot(operation.outputs[0].name, operation.outputs[0].type, constant_slot(*value));
      } else if (is_constexpr(operation.type)) {
        auto slots = constexpr_slots(
            operation,
            [&](const std::string& name) -> const Slot* {
              const auto found = names_.find(name);
              return found == names_.end() || !slot(found->second).constant ? nullptr : &slot(found->second);
            },
            run_.kernels);
        if (slots.size() < operation.outputs.size())
          throw Error(ErrorCode::bad_format, "more results than it gives");
        for (std::size_t i = 0; i < operation.outputs.size(); ++i)
          add_slot(operation.outputs[i].name, operation.outputs[i].type, std::move(slots[i]));
      } else {
        take_step(operation, where);
      }
    });
  }

  void take_step(const Operation& operation, const std::string& where) {
    Step step;
    step.row = &plan_.operations->at(operation.type);
    step.where = where;
    bool constant = true;
    const bool state = operation.type == "read_state" || operation.type == "write_state";
    for (const Parameter& parameter : step.row->parameters) {
      step.arguments.emplace_back();
      const Argument* argument = operation.input(parameter.name);
      if (argument == nullptr) continue;
      if (state && parameter.name == "input") {
        step.state = argument->bindings[0].value ? kAbsent : state_named(argument->bindings[0].name);
        if (step.state == kAbsent)
          throw Error(ErrorCode::bad_format, cat(quoted(argument->bindings[0].name), " is no state"));
        continue;
      }
      if (parameter.need != Parameter::Need::many && argument->bindings.size() != 1)
        throw Error(ErrorCode::bad_format, cat("parameter '", parameter.name, "' is bound to ",
                                               argument->bindings.size(), " values"));
      for (const Binding& binding : argument->bindings) {
        const int number = binding.value ? add_slot("", binding.value->type, constant_slot(*binding.value))
                                         : slot_named(binding.name, cat("parameter '", parameter.name, "'"));
        if (slot(number).compressed && !parameter.packed) make_dense(slot(number), run_.kernels);
        constant &= slot(number).constant;
        step.arguments.back().push_back(number);
      }
    }
    for (const NamedType& output : operation.outputs)
      step.outputs.push_back({add_slot(output.name, output.type), output.type.dtype});
    if (constant && !state) return fold(step);
    plan_.steps.push_back(std::move(step));
  }

  // Constants of constants are computed now.
  void fold(const Step& step) {
    for (std::size_t i = 0; i < step.arguments.size(); ++i)
      for (const int number : step.arguments[i]) make_dense(slot(number), run_.kernels);
    Call call(run_, step, plan_.slots, nullptr);
    step.row->run(call);
    for (const StepOutput& output : step.outputs) slot(output.slot).constant = true;
  }

  // Steps whose results reach neither an output nor a state.
  void drop_unused() {
    std::vector<bool> used(plan_.slots.size());
    for (const PlannedOutput& output : plan_.outputs) used[static_cast<std::size_t>(output.slot)] = true;
    std::vector<bool> keep(plan_.steps.size());
    for (std::size_t i = plan_.steps.size(); i-- > 0;) {
      const Step& step = plan_.steps[i];
      keep[i] = step.outputs.empty() ||
                std::any_of(step.outputs.begin(), step.outputs.end(), [&](const StepOutput& output) {
                  return used[static_cast<std::size_t>(output.slot)];
                });
      if (!keep[i]) continue;
      for (const auto& argument : step.arguments)
        for (const int number : argument) used[static_cast<std::size_t>(number)] = true;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < keep.size(); ++i)
      if (keep[i] && kept++ != i) plan_.steps[kept - 1] = std::move(plan_.steps[i]);
    plan_.steps.erase(plan_.steps.begin() + static_cast<std::ptrdiff_t>(kept), plan_.steps.end());
  }

  // Writes by a mask become one step that may write where the state lies.
  void find_masked_writes() {
    std::vector<int> maker(plan_.slots.size(), kAbsent), uses(plan_.slots.size());
    for (const PlannedOutput& output : plan_.outputs) ++uses[static_cast<std::size_t>(output.slot)];
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      for (const StepOutput& output : plan_.steps[i].outputs)
        maker[static_cast<std::size_t>(output.slot)] = static_cast<int>(i);
      for (const auto& argument : plan_.steps[i].arguments)
        for (const int number : argument) ++uses[static_cast<std::size_t>(number)];
    }
    std::vector<bool> gone(plan_.steps.size());
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      if (plan_.steps[i].row->type != "write_state") continue;
      const auto found = masked_write_of(plan_.steps, i, maker, uses, types_, plan_.slots);
      if (!found) continue;
      Step& step = plan_.steps[found->sum];
      step.row = &plan_.operations->at(masked_rows_operation().type);
      step.arguments = {{found->old}, {found->kept}, {found->mask}, {found->rows}};
      step.onto = plan_.steps[i].state;
      gone[found->scaled] = gone[found->chosen] = true;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < gone.size(); ++i)
      if (!gone[i] && kept++ != i) plan_.steps[kept - 1] = std::move(plan_.steps[i]);
    plan_.steps.erase(plan_.steps.begin() + static_cast<std::ptrdiff_t>(kept), plan_.steps.end());
  }

  std::shared_ptr<const Weight> packed_weight(int number, std::int64_t outputs, std::int64_t inputs,
                                              WeightOrder order) {
    const Slot& from = slot(number);
    const void* key =
        from.compressed ? static_cast<const void*>(from.compressed.get()) : from.tensor.data.get();
    const auto place = std::make_tuple(key, outputs, inputs, static_cast<int>(order));
    auto& cached = weights_[place];
    if (cached) return cached;
    cached = from.compressed ? std::make_shared<const Weight>(run_, from.compressed, outputs, inputs, order)
                             : std::make_shared<const Weight>(run_, from.tensor, outputs, inputs, order);
    if (!from.compressed && !from.of_package) own_.push_back(place);
    // The panels are a copy: those pages of the file need not stay in memory beside them.
    if (from.file)
      from.file->release(static_cast<std::size_t>(from.tensor.data.get() - from.file->bytes().data()),
                         from.tensor.bytes());
    return cached;
  }

  // The constant operand of a product, if it can be multiplied as panels.
  std::shared_ptr<const Weight> operand_of(const Step& step) {
    const std::string_view type = step.row->type;
    if (type != "linear" && type != "matmul" && type != "conv") return nullptr;
    const int number = step.arguments[1][0];
    const Shape& shape = slot(number).tensor.shape;
    if (!slot(number).constant || !is_float(slot(number).tensor.dtype) || shape.size() < 2 ||
        elements_in(shape) == 0)
      return nullptr;
    const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
    if (type == "linear") return packed_weight(number, rows, columns, WeightOrder::outputs_first);
    if (type == "conv") {
      const bool point = elements_in(shape) == shape[0] * shape[1];
      const auto one = [&](std::size_t parameter) {  // absent, or ones
        return step.arguments[parameter].empty() || all_equal(step.arguments[parameter][0], 1);
      };
      const bool padded = !step.arguments[5].empty() && !all_equal(step.arguments[5][0], 0);
      if (!point || !one(3) || !one(7) || padded) return nullptr;
      return packed_weight(number, shape[0], shape[1], WeightOrder::outputs_first);
    }
    const Slot& x = slot(step.arguments[0][0]);
    const bool matrix = elements_in(shape) == rows * columns &&
                        is_float(types_[static_cast<std::size_t>(step.arguments[0][0])].dtype);
    if (!matrix || x.constant) return nullptr;
    const bool transposed = !step.arguments[3].empty() && all_equal(step.arguments[3][0], 1);
    return transposed ? packed_weight(number, rows, columns, WeightOrder::outputs_first)
                      : packed_weight(number, columns, rows, WeightOrder::inputs_first);
  }

  bool all_equal(int number, std::int32_t value) {
    const Tensor& tensor = slot(number).tensor;
    if (!slot(number).constant || !tensor.data) return false;
    std::vector<std::int32_t> values(static_cast<std::size_t>(tensor.elements()));
    load(run_.kernels, tensor, 0, tensor.elements(), values.data());
    return std::all_of(values.begin(), values.end(), [&](std::int32_t each) { return each == value; });
  }

  void pack_weights() {
    for (Step& step : plan_.steps) step.weight = operand_of(step);
    for (Step& step : plan_.steps) {
      for (std::size_t i = 0; i < step.arguments.size(); ++i) {
        if (!step.row->parameters[i].packed || step.arguments[i].empty() || step.weight) continue;
        Slot& from = slot(step.arguments[i][0]);
        if (step.row->type == "gather" && looks_rows_up(step, from)) continue;
        make_dense(from, run_.kernels);
      }
    }
  }

  // An embedding that is packed, for its rows or for a product, is looked up where it is packed.
  bool looks_rows_up(Step& step, const Slot& table) {
    const Shape& shape = table.tensor.shape;
    const bool rows = table.constant && shape.size() == 2 &&
                      (step.arguments[2].empty() || all_equal(step.arguments[2][0], 0)) &&
                      (step.arguments[3].empty() || all_equal(step.arguments[3][0], 0));
    if (!rows) return false;
    if (table.compressed) return true;
    const auto packed = weights_.find(
        {table.tensor.data.get(), shape[0], shape[1], static_cast<int>(WeightOrder::outputs_first)});
    if (packed == weights_.end()) return false;
    step.weight = packed->second;
    return true;
  }

  void find_last_uses() {
    std::vector<bool> needed(plan_.slots.size());
    for (std::size_t i = 0; i < plan_.slots.size(); ++i) needed[i] = plan_.slots[i].constant;
    for (const PlannedOutput& output : plan_.outputs) needed[static_cast<std::size_t>(output.slot)] = true;
    for (std::size_t i = plan_.steps.size(); i-- > 0;) {
      Step& step = plan_.steps[i];
      const auto release = [&](int number) {
        if (needed[static_cast<std::size_t>(number)]) return;
        needed[static_cast<std::size_t>(number)] = true;
        step.releases.push_back(number);
      };
      for (const StepOutput& output : step.outputs) release(output.slot);
      for (const auto& argument : step.arguments)
        for (const int number : argument) release(number);
    }
  }

  // Slices of a state that is read, updated once or several times, and written, with nothing between that would see the difference.
  void find_in_place() {
    std::vector<int> maker(plan_.slots.size(), kAbsent);
    for (std::size_t i = 0; i < plan_.steps.size(); ++i)
      for (const StepOutput& output : plan_.steps[i].outputs)
        maker[static_cast<std::size_t>(output.slot)] = static_cast<int>(i);
    for (std::size_t i = 0; i < plan_.steps.size(); ++i) {
      if (plan_.steps[i].row->type != "write_state") continue;
      const int state = plan_.steps[i].state;
      std::vector<std::size_t> updates;
      int at = maker[static_cast<std::size_t>(plan_.steps[i].arguments[1][0])];
      while (at != kAbsent && plan_.steps[static_cast<std::size_t>(at)].row->type == "slice_update") {
        updates.push_back(static_cast<std::size_t>(at));
        at = maker[static_cast<std::size_t>(plan_.steps[static_cast<std::size_t>(at)].arguments[0][0])];
      }
      if (at == kAbsent || updates.empty() ||
          plan_.steps[static_cast<std::size_t>(at)].row->type != "read_state" ||
          plan_.steps[static_cast<std::size_t>(at)].state != state)
        continue;
      const auto touches = [&](std::size_t first, std::size_t last, std::string_view type) {
        for (std::size_t k = first; k < last; ++k)
          if (plan_.steps[k].state == state && plan_.steps[k].row->type == type) return true;
        return false;
      };
      if (touches(static_cast<std::size_t>(at) + 1, i, "write_state") ||
          touches(updates.back() + 1, i, "read_state"))
        continue;
      for (const std::size_t update : updates) plan_.steps[update].onto = state;
    }
  }

  // What no step looks at any more: constants that were folded into others, or packed.
  void drop_constants() {
    std::vector<bool> used(plan_.slots.size());
    for (const PlannedOutput& output : plan_.outputs) used[static_cast<std::size_t>(output.slot)] = true;
    std::vector<bool> shape_only(plan_.slots.size());
    for (const Step& step : plan_.steps)
      for (std::size_t i = 0; i < step.arguments.size(); ++i)
        for (const int number : step.arguments[i]) {
          const bool packed = step.weight && step.row->parameters[i].packed;
          (packed ? shape_only : used)[static_cast<std::size_t>(number)] = true;
        }
    for (std::size_t i = 0; i < plan_.slots.size(); ++i) {
      if (used[i] || !plan_.slots[i].constant) continue;
      plan_.slots[i].tensor.data = nullptr;
      plan_.slots[i].compressed = nullptr;
      if (!shape_only[i]) plan_.slots[i].tensor.shape.clear();
    }
  }

  Runtime& run_;
  const Program& program_;
  const Function& function_;
  WeightCache& weights_;
  // Made from constants that end with the plan: another may lie at their address next.
  std::vector<WeightCache::key_type> own_;
  Plan plan_;
  std::vector<ValueType> types_;
  std::unordered_map<std::string, int> names_;
};

}  // namespace

void check_operations(const Program& program) {
  const OperationTable table = operation_table();
  std::string list;
  std::size_t found = 0;
  for (const Function& function : program.functions)
    for (const Operation& operation : function.block.operations) {
      const std::string missing = missing_in(operation, table);
      if (missing.empty()) continue;
      if (++found <= kMostListed)
        list += cat(found > 1 ? "; " : "", place_of(program, function, operation), " ", missing);
    }
  if (found == 0) return;
  if (found > kMostListed) list += cat("; and ", found - kMostListed, " more");
  throw Error(
      ErrorCode::unsupported,
      cat(program.source, ": ", found, found == 1 ? " operation" : " operations", " cannot be run: ", list));
}

Plan make_plan(Runtime& run, const Program& program, const Function& function, WeightCache& weights) {
  return Planner(run, program, function, weights).plan();
}

}  // namespace kvtide::coreml
