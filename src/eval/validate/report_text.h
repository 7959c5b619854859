// report_text.h: a validation's report as people read it: in a terminal, and as a page with pictures.
//
// Thread rules: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "eval/validate/report.h"

namespace kvtide {

// The verdict, what is wrong and what to do, the checks, the worst layers and tokens. Ends with a line feed.
std::string report_text(const ValidationReport& report);
// A page that needs nothing from elsewhere.
std::string report_html(const ValidationReport& report);
// Layers and tokens as a picture (heat_map.cpp), a PNG file. Throws Error(unsupported) when no layers were
// compared.
std::vector<std::byte> report_png(const ValidationReport& report);

}  // namespace kvtide
