// arguments.h: texts and lists that Python gives, as C++ has them.
//
// nanobind's own conversions to std::string and std::vector end the program when an allocation fails within
// them. So bound functions take nb::str, nb::bytes and sequences, and convert with these, which throw.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>
#include <vector>

namespace kvtide::python {

template <class Item>
using Sequence = nanobind::typed<nanobind::sequence, Item>;

using Dict = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;

inline std::string_view view_of(const nanobind::bytes& bytes) {
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string text_of(const nanobind::bytes& bytes) { return std::string(view_of(bytes)); }

// Throws what Python says of text that cannot be written as UTF-8.
inline std::string text_of(const nanobind::str& text) {
  Py_ssize_t size = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (utf8 == nullptr) throw nanobind::python_error();
  return {utf8, static_cast<std::size_t>(size)};
}

// An item of a list, by name of the list for the message. Throws TypeError.
template <class T>
T item_of(const nanobind::handle& item, const char* name) {
  T value{};
  if (!nanobind::try_cast(item, value))
    throw nanobind::type_error((std::string(name) + " holds an item of another kind").c_str());
  return value;
}

// T is a number, or a tuple of such: nothing whose conversion allocates.
template <class T>
std::vector<T> vector_of(const nanobind::handle& items, const char* name) {
  std::vector<T> values;
  for (const nanobind::handle item : items) values.push_back(item_of<T>(item, name));
  return values;
}

inline std::vector<std::string> texts_of(const nanobind::handle& items, const char* name) {
  std::vector<std::string> values;
  for (const nanobind::handle item : items) values.push_back(text_of(item_of<nanobind::str>(item, name)));
  return values;
}

}  // namespace kvtide::python
