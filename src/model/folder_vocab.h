// folder_vocab.h: the vocabulary of a Hugging Face folder: tokenizer.json, and what lies beside it.
//
// tokenizer.json is the authority: which tokens there are, which of them are special, how text becomes ids.
// tokenizer_config.json adds which special token begins and ends a text, and the chat template. Ids that
// config.json gives are compared, and overruled where they disagree.
// Ownership: owns every text that spec() refers to.
// Thread rules: const from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json_fields.h"
#include "base/json/json_value.h"
#include "text/vocab.h"

namespace kvtide {

class FolderVocab {
 public:
  // `size`: rows of the embedding; an added token beyond is left out, with a note. Throws Error: not_found,
  // bad_format, unsupported (a component that is not known, by name).
  FolderVocab(const std::string& folder, const JsonFields& config, std::int64_t size);

  // Unused tokens for the rows of the embedding that have none.
  void fill_up(std::int64_t size);

  const VocabSpec& spec() const { return spec_; }
  const std::string& chat_template() const { return chat_template_; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  void take_chat_template(const JsonValue* chat_template);  // nullptr: there is none
  void read_side_files(const std::string& folder);
  void choose_ends(const JsonFields& config);
  std::optional<TokenId> find(std::string_view token) const;

  JsonValue json_;
  VocabSpec spec_;
  std::string chat_template_;
  std::optional<std::string> bos_text_, eos_text_;  // as tokenizer_config.json names them
  std::vector<std::string> notes_;
};

}  // namespace kvtide
