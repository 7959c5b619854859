#include "misuse.h"

#include <cstring>

#include "kvtide/error.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

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
    raise(static_cast<PyObject*>(by_code), error_code_name(error.code()), error.what());
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
