// other_names.h: flags as other programs spell them: names that mean a flag of ours, and words about those that have
// no meaning here.
#pragma once

#include <string_view>

namespace kvtide {

// The name of our flag that `word` stands for; empty: none.
std::string_view name_meant(std::string_view word);

// What to do instead of giving this flag, as a half sentence; empty: it is not known.
std::string_view advice_about(std::string_view word);

}  // namespace kvtide
