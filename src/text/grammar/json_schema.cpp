#include "text/grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

#include "base/json/json_text.h"
#include "base/refuse.h"
#include "base/text.h"
#include "text/grammar/json_patterns.h"

namespace kvtide::grammar {
namespace {

constexpr int kMostSchemaDepth = 48, kMostItems = 4096;

// Say something about a value and ask nothing of it.
constexpr std::string_view kNotes[] = {"title",        "description", "default",         "examples",
                                       "deprecated",   "readOnly",    "writeOnly",       "$schema",
                                       "$id",          "$comment",    "$anchor",         "$defs",
                                       "definitions",  "format",      "contentEncoding", "contentMediaType",
                                       "discriminator"};

class SchemaReader {
 public:
  SchemaReader(Grammar& grammar, const JsonValue& root, std::string_view place)
      : grammar_(grammar), root_(root), any_(add_any_json(grammar)), place_(place) {}

  Pattern read(const JsonValue& schema, const std::string& place, int depth) {
    if (depth > kMostSchemaDepth) wrong(place, "schemas lie too deep in each other");
    if (schema.boolean() != nullptr)
      return *schema.boolean() ? Pattern::rule(any_.value) : Pattern::choice({});
    if (schema.object() == nullptr) wrong(place, cat("must be a schema, an object, not ", schema.kind()));
    if (schema.find("$ref") != nullptr) return reference(schema, place, depth);
    if (schema.find("const") != nullptr) {
      only(schema, place, {"const", "type"});
      return literal(*schema.find("const"));
    }
    if (const JsonValue* values = schema.find("enum")) {
      only(schema, place, {"enum", "type"});
      if (values->list() == nullptr || values->list()->empty())
        wrong(place + ".enum", "must be a list with values");
      std::vector<Pattern> ways;
      for (const JsonValue& value : *values->list()) ways.push_back(literal(value));
      return Pattern::choice(std::move(ways));
    }
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (schema.find(key) != nullptr) return any_of(schema, key, place, depth);
    return typed(schema, place, depth);
  }

 private:
  [[noreturn]] void wrong(const std::string& place, const std::string& why) const {
    refuse(cat(place_, place, ": ", why));
  }
  // Refuses members that would ask something of the value and are not among `known`.
  void only(const JsonValue& schema, const std::string& place,
            std::initializer_list<std::string_view> known) const {
    for (const auto& [key, value] : *schema.object())
      if (std::find(known.begin(), known.end(), key) == known.end() &&
          std::find(std::begin(kNotes), std::end(kNotes), key) == std::end(kNotes))
        throw Error(ErrorCode::unsupported,
                    cat(place_, place, ": the keyword ", quoted(key), " is not supported here"));
  }
  static Pattern literal(const JsonValue& value) { return Pattern::text(json_text(value, JsonForm::line)); }

  Pattern reference(const JsonValue& schema, const std::string& place, int depth) {
    only(schema, place, {"$ref"});
    const std::string* path = schema.find("$ref")->text();
    if (path == nullptr || !path->starts_with('#'))
      throw Error(ErrorCode::unsupported,
                  cat(place_, place, ".$ref: only parts of this schema can be referred to: #/..."));
    if (const auto found = references_.find(*path); found != references_.end())
      return Pattern::rule(found->second);
    const JsonValue* at = &root_;
    for (std::size_t from = 1; from < path->size();) {
      const std::size_t end = std::min(path->find('/', from + 1), path->size());
      const std::string key = path->substr(from + 1, end - from - 1);
      at = (*path)[from] == '/' ? at->find(key) : nullptr;
      if (at == nullptr) wrong(place + ".$ref", cat("there is no ", quoted(*path)));
      from = end;
    }
    const int rule = grammar_.rule();
    references_.emplace(*path, rule);
    grammar_.define(rule, read(*at, *path, depth + 1));
    return Pattern::rule(rule);
  }

  Pattern any_of(const JsonValue& schema, const char* key, const std::string& place, int depth) {
    only(schema, place, {key});
    const JsonValue::List* list = schema.find(key)->list();
    if (list == nullptr || list->empty()) wrong(cat(place, ".", key), "must be a list of schemas");
    if (std::string_view(key) == "allOf" && list->size() > 1)
      throw Error(ErrorCode::unsupported,
                  cat(place_, place, ": the keyword 'allOf' is supported with one schema only"));
    std::vector<Pattern> ways;
    for (const JsonValue& one : *list)
      ways.push_back(read(one, cat(place, ".", key, "[", ways.size(), "]"), depth + 1));
    return Pattern::choice(std::move(ways));
  }

  Pattern typed(const JsonValue& schema, const std::string& place, int depth) {
    const JsonValue* type = schema.find("type");
    if (type == nullptr) {
      if (schema.find("properties") != nullptr) return object(schema, place, depth);
      if (schema.find("items") != nullptr) return list(schema, place, depth);
      only(schema, place, {});
      return Pattern::rule(any_.value);
    }
    if (type->text() != nullptr) return of_type(*type->text(), schema, place, depth);
    if (type->list() == nullptr || type->list()->empty())
      wrong(place + ".type", "must be a name or a list of names");
    std::vector<Pattern> ways;
    for (const JsonValue& one : *type->list()) {
      if (one.text() == nullptr) wrong(place + ".type", "must be a name or a list of names");
      if (type->list()->size() > 1 && *one.text() == "null")
        ways.push_back(Pattern::text("null"));
      else
        ways.push_back(of_type(*one.text(), schema, place, depth));
    }
    return Pattern::choice(std::move(ways));
  }

  Pattern of_type(const std::string& type, const JsonValue& schema, const std::string& place, int depth) {
    if (type == "object") return object(schema, place, depth);
    if (type == "array") return list(schema, place, depth);
    if (type == "string") {
      only(schema, place, {"type", "minLength", "maxLength"});
      const auto [least, most] = counts(schema, place, "minLength", "maxLength");
      return json_text_of(least, most);
    }
    if (type == "integer") {
      only(schema, place, {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"});
      return integer(schema, place);
    }
    only(schema, place, {"type"});
    if (type == "number") return json_number();
    if (type == "boolean") return Pattern::choice({Pattern::text("true"), Pattern::text("false")});
    if (type == "null") return Pattern::text("null");
    wrong(place + ".type", cat("there is no type ", quoted(type)));
  }

  std::optional<std::int64_t> bound(const JsonValue& schema, const std::string& place,
                                    const char* key) const {
    const JsonValue* value = schema.find(key);
    if (value == nullptr) return std::nullopt;
    const std::optional<double> number = value->number();
    if (value->integer() != nullptr) return *value->integer();
    if (!number || !(*number >= -1e15 && *number <= 1e15) ||
        *number != static_cast<double>(static_cast<std::int64_t>(*number)))
      wrong(cat(place, ".", key), "must be a whole number");
    return static_cast<std::int64_t>(*number);
  }

  Pattern integer(const JsonValue& schema, const std::string& place) const {
    auto low = bound(schema, place, "minimum"), high = bound(schema, place, "maximum");
    if (const auto above = bound(schema, place, "exclusiveMinimum"))
      low = std::max(low.value_or(*above), *above + 1);
    if (const auto below = bound(schema, place, "exclusiveMaximum"))
      high = std::min(high.value_or(*below), *below - 1);
    if (!low && !high) return json_integer();
    if (low && high && *low > *high) wrong(place, "no number is that large and that small");
    return json_integer_between(low, high);
  }

  std::pair<int, int> counts(const JsonValue& schema, const std::string& place, const char* least,
                             const char* most) const {
    std::pair<int, int> out = {0, kWithoutEnd};
    for (const char* key : {least, most}) {
      const auto value = bound(schema, place, key);
      if (!value) continue;
      if (*value < 0 || *value > kMostItems)
        wrong(cat(place, ".", key), cat("must be from 0 to ", kMostItems));
      (key == least ? out.first : out.second) = static_cast<int>(*value);
    }
    if (out.second != kWithoutEnd && out.second < out.first) wrong(place, cat(most, " is less than ", least));
    return out;
  }

  Pattern list(const JsonValue& schema, const std::string& place, int depth) {
    only(schema, place, {"type", "items", "prefixItems", "minItems", "maxItems"});
    const auto [least, most] = counts(schema, place, "minItems", "maxItems");
    const JsonValue* items = schema.find("items");
    if (const JsonValue* first = schema.find("prefixItems")) return tuple(*first, items, place, least, depth);
    const Pattern item =
        items == nullptr ? Pattern::rule(any_.value) : as_rule(*items, place + ".items", depth);
    return json_items('[', item, least, most, ']');
  }

  // A list of exactly these.
  Pattern tuple(const JsonValue& first, const JsonValue* rest, const std::string& place, int least,
                int depth) {
    if (first.list() == nullptr) wrong(place + ".prefixItems", "must be a list of schemas");
    if (least > static_cast<int>(first.list()->size()) || (rest != nullptr && rest->boolean() == nullptr))
      throw Error(ErrorCode::unsupported,
                  cat(place_, place, ": the keyword 'items' is not supported beside 'prefixItems'"));
    std::vector<Pattern> parts = {Pattern::text("["), json_space()};
    std::size_t at = 0;
    for (const JsonValue& item : *first.list()) {
      if (at > 0) parts.insert(parts.end(), {Pattern::text(","), json_space()});
      parts.push_back(read(item, cat(place, ".prefixItems[", at++, "]"), depth + 1));
      parts.push_back(json_space());
    }
    parts.push_back(Pattern::text("]"));
    return Pattern::sequence(std::move(parts));
  }

  // Written once, however often it is repeated.
  Pattern as_rule(const JsonValue& schema, const std::string& place, int depth) {
    const int rule = grammar_.rule();
    grammar_.define(rule, read(schema, place, depth + 1));
    return Pattern::rule(rule);
  }

  Pattern object(const JsonValue& schema, const std::string& place, int depth) {
    only(schema, place, {"type", "properties", "required", "additionalProperties"});
    const JsonValue *properties = schema.find("properties"), *required = schema.find("required"),
                    *others = schema.find("additionalProperties");
    if (properties != nullptr && properties->object() == nullptr)
      wrong(place + ".properties", "must be an object");
    if (required != nullptr && required->list() == nullptr)
      wrong(place + ".required", "must be a list of names");
    if ((properties == nullptr || properties->object()->empty()) &&
        (required == nullptr || required->list()->empty()))
      return map(others, place, depth);
    std::vector<std::pair<Pattern, bool>> members;  // and whether it must be there
    const auto is_required = [&](const std::string& name) {
      return required != nullptr &&
             std::any_of(required->list()->begin(), required->list()->end(),
                         [&](const JsonValue& one) { return one.text() != nullptr && *one.text() == name; });
    };
    const auto add = [&](const std::string& name, Pattern value, bool must) {
      members.emplace_back(Pattern::sequence({json_literal_text(name), json_space(), Pattern::text(":"),
                                              json_space(), std::move(value), json_space()}),
                           must);
    };
    if (properties != nullptr)
      for (const auto& [name, one] : *properties->object())
        add(name, read(one, cat(place, ".properties.", name), depth + 1), is_required(name));
    if (required != nullptr)
      for (const JsonValue& name : *required->list()) {
        if (name.text() == nullptr) wrong(place + ".required", "must be a list of names");
        if (properties == nullptr || properties->find(*name.text()) == nullptr)
          add(*name.text(), Pattern::rule(any_.value), true);
      }
    return members_in_order(members);
  }

  Pattern map(const JsonValue* others, const std::string& place, int depth) {
    if (others != nullptr && others->boolean() != nullptr && !*others->boolean())
      return Pattern::sequence({Pattern::text("{"), json_space(), Pattern::text("}")});
    if (others == nullptr || others->boolean() != nullptr) return Pattern::rule(any_.object);
    const Pattern value = as_rule(*others, place + ".additionalProperties", depth);
    const Pattern member = Pattern::sequence(
        {json_text_of(0, kWithoutEnd), json_space(), Pattern::text(":"), json_space(), value});
    return json_items('{', member, 0, kWithoutEnd, '}');
  }

  // Rule i of `behind`: what may follow when something stands in front. Rules keep the grammar as long as the schema.
  Pattern members_in_order(const std::vector<std::pair<Pattern, bool>>& members) {
    const Pattern comma = Pattern::sequence({Pattern::text(","), json_space()});
    Pattern behind, first;  // of the members from i on, with something in front, and with nothing
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      const int rule = grammar_.rule();
      grammar_.define(rule, behind);
      const Pattern rest = Pattern::rule(rule);
      const Pattern here = Pattern::sequence({member->first, rest});
      const int first_rule = grammar_.rule();
      grammar_.define(first_rule, here);
      const Pattern with = Pattern::rule(first_rule);
      behind = member->second ? Pattern::sequence({comma, with})
                              : Pattern::choice({Pattern::sequence({comma, with}), rest});
      first = member->second ? with : Pattern::choice({with, first});
    }
    return Pattern::sequence({Pattern::text("{"), json_space(), first, Pattern::text("}")});
  }

  Grammar& grammar_;
  const JsonValue& root_;
  AnyJson any_;
  std::string place_;
  std::map<std::string, int> references_;
};

}  // namespace

Pattern add_schema(Grammar& grammar, const JsonValue& schema, std::string_view place) {
  return SchemaReader(grammar, schema, place).read(schema, "", 0);
}

Grammar grammar_of_schema(const JsonValue& schema, std::string_view place) {
  Grammar out;
  const int root = out.rule();
  out.define(root, add_schema(out, schema, place));
  return out;
}

Grammar grammar_of_any_object() {
  Grammar out;
  const int root = out.rule();
  out.define(root, Pattern::rule(add_any_json(out).object));
  return out;
}

}  // namespace kvtide::grammar
