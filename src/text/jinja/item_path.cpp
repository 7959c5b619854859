#include "text/jinja/item_path.h"

#include "base/text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/number_reading.h"
#include "text/jinja/text_parts.h"
#include "text/normalize.h"

namespace kvtide::jinja {

ItemPath::ItemPath(Run& run, const Value& attribute, std::optional<Value> fallback)
    : fallback_(std::move(fallback)) {
  if (attribute.is_none()) return;
  const MarkedText* text = attribute.marked();
  if (text == nullptr) {
    if (!attribute.whole())
      run.refuse(cat("an attribute must be a text or a whole number, not ", attribute.type_name()));
    keys_.push_back(attribute);
    return;
  }
  for (const ByteRange& part : split_at(text->view(), ".", -1, false)) {
    const std::string_view name = text->view().substr(part.begin, part.end - part.begin);
    const bool is_place = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
    const auto place = is_place ? read_whole(name, 10) : std::nullopt;
    keys_.push_back(place ? Value(*place) : Value::text(name));
  }
}

Value ItemPath::of(Run& run, const Value& item) const {
  Value found = item;
  for (const Value& key : keys_) {
    found = item_of(run, found, key);
    if (found.is_undefined() && fallback_) found = *fallback_;
  }
  return found;
}

Value sort_key(Run& run, const ItemPath& path, const Value& item, bool by_case) {
  Value key = path.of(run, item);
  if (by_case || key.marked() == nullptr) return key;
  return run.made(MarkedText(lowercased(key.marked()->view())));
}

}  // namespace kvtide::jinja
