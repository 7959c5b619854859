// safetensors_verdicts.cpp: reads a file of candidates ([u32 length][bytes], one after another) and prints 1
// for each that is accepted and 0 for each that is refused, as one line. For tools/compare_safetensors.py.
#include <cstdio>
#include <cstring>
#include <string>

#include "base/mapped_file.h"
#include "formats/safetensors.h"
#include "kvtide/error.h"

int main(int count, char** words) {
  if (count != 2) return 2;
  const kvtide::MappedFile file(words[1]);
  std::string verdicts;
  std::span<const std::byte> left = file.bytes();
  while (left.size() >= sizeof(std::uint32_t)) {
    std::uint32_t length = 0;
    std::memcpy(&length, left.data(), sizeof length);
    left = left.subspan(sizeof length);
    if (length > left.size()) return 3;
    try {
      kvtide::SafeTensors::parse(left.first(length), "candidate");
      verdicts += '1';
    } catch (const kvtide::Error&) {
      verdicts += '0';
    }
    left = left.subspan(length);
  }
  std::printf("%s\n", verdicts.c_str());
}
