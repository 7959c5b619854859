// model_title.h: the name of a model as people know it.
#pragma once

#include <string>
#include <string_view>

namespace kvtide {

// "SmolLM2-135M" for a name in the metadata that says how it was trained instead; any other name as it is. For people
// only: JSON has the name of the metadata. (tools/model_titles.py does the same for pictures.)
std::string model_title(std::string_view name);

}  // namespace kvtide
