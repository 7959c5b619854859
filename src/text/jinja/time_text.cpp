// strftime, one field after the other: what a field is may come from a template, so none can ask for a huge one.
#include <ctime>

#include "base/text.h"
#include "text/jinja/functions.h"

namespace kvtide::jinja {

MarkedText time_text(Run& run, std::string_view format) {
  if (!run.now()) run.refuse("strftime_now needs a clock, and none was given");
  constexpr std::string_view kFlags = "-_0^#", kFields = "aAbBcCdDeFgGhHIjklmMnprRStTuUVwWxXyY%";
  MarkedText out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out.append(format.substr(at, 1));
      continue;
    }
    const bool has_flag = kFlags.find(format[at + 1]) != kFlags.npos && at + 2 < format.size();
    const std::size_t length = has_flag ? 3 : 2;
    const char kind = format[at + length - 1];
    if (kind == 'f') {
      out.append("000000");
    } else if (kFields.find(kind) != kFields.npos) {
      const std::string field(format.substr(at, length));
      char text[256];
      const std::tm time = *run.now();
      out.append(std::string_view(text, std::strftime(text, sizeof text, field.c_str(), &time)));
    } else if (kind != 'z' && kind != 'Z') {  // a time without a zone has neither
      out.append(format.substr(at, length));
    }
    at += length - 1;
  }
  return out;
}

}  // namespace kvtide::jinja
