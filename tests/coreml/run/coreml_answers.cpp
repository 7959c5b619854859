// For tools/references/compare_coreml.py: opens packages and answers calls, asked for on standard input.
//
//   open MODEL PATH           state STATE MODEL FUNCTION      read STATE NAME
//   write STATE NAME 1    and an array, whose own name does not matter
//   call MODEL FUNCTION STATE COUNT    and COUNT arrays: a line "NAME TYPE RANK SIZES..", then their bytes
// An answer is a line "arrays COUNT" and such arrays, or "error SENTENCE". `-` stands for the default function and for no state.
#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>

#include "kvtide/coreml.h"

namespace {

using kvtide::CoremlArray;
using kvtide::CoremlType;

constexpr std::pair<CoremlType, std::size_t> kTypes[] = {
    {CoremlType::f16, 2}, {CoremlType::f32, 4}, {CoremlType::i32, 4}, {CoremlType::i16, 2},
    {CoremlType::u16, 2}, {CoremlType::i8, 1},  {CoremlType::u8, 1},  {CoremlType::boolean, 1}};

std::pair<std::string, CoremlArray> read_array() {
  std::string line, name, type;
  std::getline(std::cin, line);
  std::istringstream words(line);
  std::size_t rank = 0, bytes = 1;
  words >> name >> type >> rank;
  CoremlArray array;
  array.shape.resize(rank);
  for (auto& size : array.shape) {
    words >> size;
    bytes *= static_cast<std::size_t>(size);
  }
  for (const auto& [each, size] : kTypes)
    if (type == kvtide::coreml_type_name(each)) {
      array.type = each;
      bytes *= size;
    }
  array.bytes.resize(bytes);
  std::cin.read(reinterpret_cast<char*>(array.bytes.data()), static_cast<std::streamsize>(bytes));
  return {name, std::move(array)};
}

void write_arrays(const std::map<std::string, CoremlArray>& arrays) {
  std::cout << "arrays " << arrays.size() << "\n";
  for (const auto& [name, array] : arrays) {
    std::cout << name << " " << kvtide::coreml_type_name(array.type) << " " << array.shape.size();
    for (const auto size : array.shape) std::cout << " " << size;
    std::cout << "\n";
    std::cout.write(reinterpret_cast<const char*>(array.bytes.data()),
                    static_cast<std::streamsize>(array.bytes.size()));
  }
}

std::map<std::string, kvtide::CoremlModel> models;
std::map<std::string, kvtide::CoremlState> states;

void answer(std::istringstream& words) {
  const auto word = [&] {
    std::string text;
    words >> text;
    return text;
  };
  const auto function = [&] {
    const std::string text = word();
    return text == "-" ? std::string() : text;
  };
  const std::string what = word();
  if (what == "open") {
    const std::string name = word(), path = word();
    kvtide::CoremlOptions options;
    options.threads = 2;
    models.insert_or_assign(name, kvtide::CoremlModel(path, options));
    write_arrays({});
  } else if (what == "state") {
    const std::string name = word(), model = word();
    states.insert_or_assign(name, models.at(model).make_state(function()));
    write_arrays({});
  } else if (what == "read") {
    const std::string state = word(), name = word();
    write_arrays({{name, states.at(state).read(name)}});
  } else if (what == "write") {
    const std::string state = word(), name = word();
    states.at(state).write(name, read_array().second);
    write_arrays({});
  } else if (what == "copied") {
    CoremlArray bytes{CoremlType::i32, {1}, std::vector<std::byte>(4)};
    const auto copied = static_cast<std::int32_t>(models.at(word()).report().state_bytes_copied);
    std::copy_n(reinterpret_cast<const std::byte*>(&copied), 4, bytes.bytes.begin());
    write_arrays({{"copied", bytes}});
  } else if (what == "call") {
    const std::string model = word(), called = function(), state = word();
    std::size_t count = 0;
    words >> count;
    std::map<std::string, CoremlArray> inputs;
    for (std::size_t i = 0; i < count; ++i) inputs.insert(read_array());
    write_arrays(models.at(model).predict(inputs, state == "-" ? nullptr : &states.at(state), called));
  }
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    try {
      answer(words);
    } catch (const std::exception& error) {
      std::cout << "error " << error.what() << "\n";
    }
    std::cout.flush();
  }
}
