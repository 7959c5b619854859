// output_file.h: a file that appears under its name complete or not at all.
//
// Ownership: owns a file beside the target until commit() puts it in the target's place; dropped before that,
// it leaves nothing. A target that is no regular file (a pipe, a device) is written directly. Thread rules:
// one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvtide {

class OutputFile {
 public:
  // Throws Error(io) that names the path when no file can be made there.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Throw Error(io): a full disk, a limit.
  void write(std::string_view bytes);
  void commit();

  // A file of these bytes and nothing else.
  static void write_whole(const std::string& path, std::string_view bytes);
  // Throws what the constructor would throw, before a long computation instead of after it.
  static void check(const std::string& path);
  // The same for a file that takes the place of what was there: a pipe or device must not be replaced.
  static void check_replaceable(const std::string& path);
  // Throws Error(io) when so many bytes have no room there: a disk that is nearly full, a limit on file sizes. `what`
  // is to be written, `helps` is the end of the message.
  static void check_room(const std::string& path, std::int64_t bytes, std::string_view what,
                         std::string_view helps);

 private:
  void flush();
  [[noreturn]] void refuse(std::string_view what, int failure) const;

  std::string path_;       // as the user wrote it
  std::string target_;     // behind symbolic links
  std::string temporary_;  // empty: target_ is written directly
  std::string buffer_;
  int fd_ = -1;
};

}  // namespace kvtide
