#include "serve/routes/response_files.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/checksum.h"
#include "base/folder_names.h"
#include "base/json/json.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::serve {
namespace response_files {

constexpr std::string_view kFront = "resp_", kEnding = ".json";
constexpr std::size_t kDigits = 8;  // of the sum, which is the first line
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;

struct Read {
  StoredResponse response;
  std::int64_t written = 0;  // microseconds since 1970
};

std::string sum_of(std::string_view text) {
  std::uint32_t sum = crc32c(std::as_bytes(std::span(text)));
  std::string out(kDigits, '0');
  for (std::size_t i = kDigits; i-- > 0; sum >>= 4) out[i] = "0123456789abcdef"[sum & 15];
  return out;
}

std::string text_of(const StoredResponse& response) {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  Json out = Json::object(), conversation = Json::array();
  for (const ChatMessage& message : response.conversation) {
    Json one = Json::object();
    one.set("role", message.role).set("content", message.content).set("more", message.more);
    conversation.push(std::move(one));
  }
  out.set("id", response.id).set("body", response.body).set("conversation", std::move(conversation));
  out.set("written", std::chrono::duration_cast<std::chrono::microseconds>(since).count());
  const std::string text = out.text(false);
  return cat(sum_of(text), "\n", text);
}

const std::string& text_in(const JsonValue& json, std::string_view name) {
  const JsonValue* found = json.find(name);
  if (found == nullptr || found->text() == nullptr)
    throw Error(ErrorCode::bad_format, cat(name, " is missing"));
  return *found->text();
}

Read parse(std::string_view file, std::string_view id) {
  if (file.size() <= kDigits || file[kDigits] != '\n' ||
      sum_of(file.substr(kDigits + 1)) != file.substr(0, kDigits))
    throw Error(ErrorCode::bad_format, "its sum does not match");
  const JsonValue json = JsonValue::parse(file.substr(kDigits + 1), "it");
  Read out{{text_in(json, "id"), text_in(json, "body"), {}}, 0};
  if (out.response.id != id) throw Error(ErrorCode::bad_format, "it is another answer than its name says");
  const JsonValue* conversation = json.find("conversation");
  const JsonValue* written = json.find("written");
  if (conversation == nullptr || conversation->list() == nullptr || written == nullptr ||
      written->integer() == nullptr)
    throw Error(ErrorCode::bad_format, "its conversation is missing");
  out.written = *written->integer();
  for (const JsonValue& one : *conversation->list())
    out.response.conversation.push_back(
        {text_in(one, "role"), text_in(one, "content"), text_in(one, "more")});
  return out;
}

Read read_file(FileSystem& files, const std::string& path, std::string_view id) {
  FileReader file(files, path);
  if (file.size() > kMostBytes) throw Error(ErrorCode::bad_format, "it is too large");
  std::string text(file.size(), ' ');
  file.read(std::as_writable_bytes(std::span(text)));
  return parse(text, id);
}

// Ids come from requests: only what this program makes is looked for.
bool is_id(std::string_view id) {
  constexpr std::size_t kLongest = 64;
  return id.starts_with(kFront) && id.size() <= kLongest &&
         std::all_of(id.begin() + kFront.size(), id.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace response_files

using response_files::kEnding;
using response_files::kFront;

ResponseFiles::ResponseFiles(std::string folder, std::function<void(const std::string&)> log)
    : folder_(std::move(folder)), log_(std::move(log)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw Error(ErrorCode::io, cat(folder_, ": cannot make the folder: ", error.message()));
}

std::string ResponseFiles::path(std::string_view id) const { return cat(folder_, "/", id, kEnding); }

std::vector<StoredResponse> ResponseFiles::read_all() {
  std::vector<response_files::Read> all;
  for (const std::string& name : names_in(folder_)) {
    if (!name.starts_with(kFront)) continue;
    const std::string whole_path = cat(folder_, "/", name);
    if (!name.ends_with(kEnding)) {  // half written, by a process that is gone
      files_.unlink(whole_path.c_str());
      continue;
    }
    try {
      all.push_back(
          response_files::read_file(files_, whole_path, name.substr(0, name.size() - kEnding.size())));
    } catch (const Error& error) {
      files_.unlink(whole_path.c_str());
      if (log_) log_(cat("removed the stored answer ", name, ": ", error.message()));
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.written < b.written; });
  std::vector<StoredResponse> out;
  for (response_files::Read& read : all) out.push_back(std::move(read.response));
  return out;
}

std::optional<StoredResponse> ResponseFiles::read(std::string_view id) noexcept {
  if (!response_files::is_id(id)) return std::nullopt;
  try {
    return response_files::read_file(files_, path(id), id).response;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_found) return std::nullopt;
    if (error.code() == ErrorCode::bad_format) remove(id);
    if (log_) log_(cat("cannot use the stored answer ", id, ": ", error.message()));
  } catch (const std::exception&) {  // of memory
  }
  return std::nullopt;
}

void ResponseFiles::write(const StoredResponse& response) noexcept {
  try {
    const std::string text = response_files::text_of(response);
    save_file_in_parts(
        files_, path(response.id), [&](const FileSink& sink) { sink(std::as_bytes(std::span(text))); },
        Flush::later);
  } catch (const std::exception& error) {
    if (log_) log_(cat("the answer ", response.id, " will not survive the server: ", error.what()));
  }
}

void ResponseFiles::remove(std::string_view id) noexcept {
  try {
    files_.unlink(path(id).c_str());
  } catch (const std::exception&) {  // of memory; the next start finds it again
  }
}

}  // namespace kvtide::serve
