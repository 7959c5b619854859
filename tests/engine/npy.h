// npy.h: reads the committed .npy files (version 1.0, little endian, C order) and lists the golden models.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace kvtide::testing {

// The numbers of a file of element type `descr` ("<f4", "<i4"), row after row.
template <class T>
std::vector<T> read_npy(const std::string& path, const std::string& descr) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (bytes.size() < 10 || !bytes.starts_with("\x93NUMPY\x01"))
    throw std::runtime_error(path + ": no .npy file");
  const std::size_t header =
      static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  const std::string text = bytes.substr(10, header);
  if (text.find("'" + descr + "'") == std::string::npos ||
      text.find("'fortran_order': False") == std::string::npos)
    throw std::runtime_error(path + ": not " + descr + " in C order");
  std::vector<T> out((bytes.size() - 10 - header) / sizeof(T));
  std::memcpy(out.data(), bytes.data() + 10 + header, out.size() * sizeof(T));
  return out;
}

// Paths of the tiny models that have golden logits, without their extension, in alphabetical order.
inline std::vector<std::string> golden_models() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(KVTIDE_GOLDENS "/models")) {
    const std::string path = entry.path().string();
    if (path.ends_with(".logits.npy"))
      out.push_back(path.substr(0, path.size() - std::string(".logits.npy").size()));
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace kvtide::testing
