#include "text/jinja/compare.h"

#include <algorithm>

#include "base/text.h"
#include "text/utf8.h"

namespace kvtide::jinja {

bool are_equal(Run& run, const Value& a, const Value& b) {
  const Run::Deeper deeper(run);
  run.step();
  if (a.whole() && b.whole()) return *a.whole() == *b.whole();
  if (a.number() && b.number()) return *a.number() == *b.number();
  if (a.marked() != nullptr && b.marked() != nullptr) return a.marked()->bytes == b.marked()->bytes;
  if (a.is_undefined() && b.is_undefined()) return true;
  const Sequence *left = a.sequence(), *right = b.sequence();
  if (left != nullptr && right != nullptr && left->form == right->form &&
      left->form != Sequence::Form::generator)
    return left == right ||
           std::equal(left->items.begin(), left->items.end(), right->items.begin(), right->items.end(),
                      [&](const Value& x, const Value& y) { return are_equal(run, x, y); });
  if (a.mapping() != nullptr && b.mapping() != nullptr) {
    if (a.mapping()->size() != b.mapping()->size()) return false;
    return std::all_of(a.mapping()->items().begin(), a.mapping()->items().end(), [&](const auto& item) {
      const Value* other = b.mapping()->find(item.first);
      return other != nullptr && are_equal(run, item.second, *other);
    });
  }
  return a.is_same(b);
}

bool is_less(Run& run, const Value& a, const Value& b, std::string_view op) {
  const Run::Deeper deeper(run);
  run.step();
  if (a.whole() && b.whole()) return *a.whole() < *b.whole();
  if (a.number() && b.number()) return *a.number() < *b.number();
  // Valid UTF-8 has the order of its characters.
  if (a.marked() != nullptr && b.marked() != nullptr) return a.marked()->bytes < b.marked()->bytes;
  if (a.is_list_or_tuple() && b.is_list_or_tuple() && a.sequence()->form == b.sequence()->form) {
    const auto &left = a.sequence()->items, &right = b.sequence()->items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (!are_equal(run, left[i], right[i])) return is_less(run, left[i], right[i], op);
    return left.size() < right.size();
  }
  run.refuse_undefined(a);
  run.refuse_undefined(b);
  run.refuse(
      cat("'", op, "' not supported between instances of '", a.type_name(), "' and '", b.type_name(), "'"));
}

bool contains(Run& run, const Value& hay, const Value& needle) {
  if (const MarkedText* text = hay.marked()) {
    if (needle.marked() == nullptr) {
      run.refuse(cat("'in <string>' requires string as left operand, not ", needle.type_name()));
    }
    run.step(1 + text->size() / 64);
    return text->view().find(needle.marked()->view()) != std::string_view::npos;
  }
  if (const Mapping* all = hay.mapping()) {
    if (!key_text(needle)) run.refuse(cat("unhashable type: '", needle.type_name(), "'"));
    return all->find(needle) != nullptr;
  }
  if (hay.is_undefined()) {
    return false;
  }
  if (hay.sequence() == nullptr) run.refuse(cat("argument of type '", hay.type_name(), "' is not iterable"));
  const auto items = items_of(run, hay);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return are_equal(run, item, needle); });
}

std::vector<Value> items_of(Run& run, const Value& value) {
  std::vector<Value> items;
  if (Sequence* all = value.sequence()) {
    run.step(1 + all->items.size());
    items.assign(all->items.begin() + static_cast<std::ptrdiff_t>(all->taken), all->items.end());
    if (all->form == Sequence::Form::generator) all->taken = all->items.size();
  } else if (const Mapping* entries = value.mapping()) {
    run.step(1 + entries->size());
    for (const auto& [key, item] : entries->items()) items.push_back(key);
  } else if (const MarkedText* text = value.marked()) {
    run.charge(text->size() * 2 * sizeof(MarkedText));
    for (std::size_t at = 0; at < text->size(); at += utf8_length(text->bytes[at]))
      items.emplace_back(text->part(at, at + utf8_length(text->bytes[at])));
  } else if (value.is_undefined()) {
  } else {
    run.refuse(cat("'", value.type_name(), "' object is not iterable"));
  }
  return items;
}

}  // namespace kvtide::jinja
