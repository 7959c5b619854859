// procedural_fields.h: what was chosen for a procedural memory, field by field: for reports, for comparing, and as
// a key of what was measured with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "kvtide/procedural.h"

namespace kvtide {

struct FieldText {
  std::string_view name;
  std::string text;  // as in JSON: numbers that read back as the same
};

// Every field, the head table included; told: only those that snapshots tell.
std::vector<FieldText> field_texts(const ProceduralOptions& options, bool told = false);

// The fields that snapshots tell, as an object.
Json fields_json(const ProceduralOptions& options);

}  // namespace kvtide
