#include "misuse.h"

#include <cstring>
#include <string>
#include <string_view>

#include "kvtide/error.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

// The library's messages advise flags of the command; callers from Python give arguments.
struct Spelling {
  std::string_view flag, argument;
};
constexpr Spelling kSpellings[] = {
    {"-c", "context=..."},
    {"--ctx", "context=..."},
    {"--chat-template", "template"},
    {"--exact", "exact=True"},
    {"--kv-budget", "kv_budget"},
    {"--kv-full-rows", "procedural={'full_rows': ...}"},
    {"--kv-levels", "procedural={'levels': ...}"},
    {"--reference", "reference"},
    {"--slots", "slots"},
    {"--tokens", "count"},
};

// Only whole words: a flag's letters may be part of the name of a file.
bool stands_alone(std::string_view text, std::size_t at, std::size_t size) {
  constexpr std::string_view kBefore = " (", kBehind = " ),;:.";
  return (at == 0 || kBefore.find(text[at - 1]) != kBefore.npos) &&
         (at + size == text.size() || kBehind.find(text[at + size]) != kBehind.npos);
}

std::string in_words_of_python(std::string text) {
  for (const auto& [flag, argument] : kSpellings)
    for (std::size_t at = text.find(flag); at != text.npos; at = text.find(flag, at)) {
      const bool alone = stands_alone(text, at, flag.size());
      if (alone) text.replace(at, flag.size(), argument);
      at += alone ? argument.size() : flag.size();
    }
  return text;
}

void raise(PyObject* by_code, const char* code, const char* message) {
  PyObject* type = PyDict_GetItemString(by_code, code);  // borrowed
  // A message may quote the name of a file, which need not be UTF-8.
  PyObject* text = PyUnicode_DecodeUTF8(message, static_cast<Py_ssize_t>(std::strlen(message)), "replace");
  if (text == nullptr) return;  // out of memory, which is then the error
  if (type != nullptr)
    PyErr_SetObject(type, text);
  else
    PyErr_NoMemory();  // every code is there; a name to look it up by could not be made
  Py_DECREF(text);
}

void translate(const std::exception_ptr& thrown, void* by_code) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    raise(static_cast<PyObject*>(by_code), error_code_name(error.code()),
          in_words_of_python(error.what()).c_str());
  } catch (const Misuse& misuse) {
    raise(static_cast<PyObject*>(by_code), misuse.code(), misuse.what());
  }
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::object by_code = nb::module_::import_("kvtide.errors").attr("BY_CODE");
  // Kept for as long as the process: translators cannot be taken back.
  nb::register_exception_translator(&translate, by_code.release().ptr());
}

}  // namespace kvtide::python
