#include "chat_template.h"

#include <nanobind/stl/tuple.h>

#include <ctime>
#include <string>
#include <tuple>

#include "arguments.h"
#include "kvtide/chat.h"
#include "running.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

// Year, month, day, hour, minute, second, day of the week (0: Monday), day of the year (from 1).
using Time = std::tuple<int, int, int, int, int, int, int, int>;

std::tm time_of(const Time& parts) {
  std::tm time{};
  std::tie(time.tm_year, time.tm_mon, time.tm_mday, time.tm_hour, time.tm_min, time.tm_sec, time.tm_wday,
           time.tm_yday) = parts;
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  time.tm_wday = (time.tm_wday + 1) % 7;  // C counts from Sunday
  time.tm_yday -= 1;
  return time;
}

nb::bytes render(const JinjaTemplate& self, const nb::bytes& variables, const Time& now) {
  std::string text;
  const std::string json = text_of(variables);
  {
    const Running running;
    const WithoutGil others_run;
    text = self.render(json, time_of(now));
  }
  return nb::bytes(text.data(), text.size());
}

}  // namespace

void bind_chat_template(nb::module_& module) {
  nb::class_<JinjaTemplate>(module, "ChatTemplate", "A chat template; kvtide.ChatTemplate wraps it.")
      .def(
          "__init__",
          [](JinjaTemplate* self, const nb::bytes& source) { new (self) JinjaTemplate(view_of(source)); },
          nb::arg("source"))
      .def("render", &render, nb::arg("variables"), nb::arg("now"));
}

}  // namespace kvtide::python
