#include "kvtide/model.h"

#include <utility>

#include "base/boot_id.h"
#include "base/file.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "model/config/longrope.h"
#include "model/identity.h"
#include "model/loaded_model.h"
#include "model/model_title.h"
#include "model/packed_binding.h"
#include "model/packed_cache.h"

namespace kvtide {
Model::Model(const std::string& path, const ModelOptions& options) try
    : loaded_(std::make_unique<LoadedModel>()) {
  LoadedModel& m = *loaded_;
  m.path = path;
  m.checkpoint = open_checkpoint(path, options.map_file ? MappedFile::Mode::map : MappedFile::Mode::copy);
  m.config = m.checkpoint->config();
  choose_rotation(m.config, options.context);
  m.name = m.checkpoint->name();
  m.chat_template = m.checkpoint->chat_template();
  m.files = m.checkpoint->files();
  m.notes = m.checkpoint->notes();
  m.parameters = m.checkpoint->parameters();

  const VocabSpec vocab = m.checkpoint->vocabulary();
  if (static_cast<std::int64_t>(vocab.tokens.size()) != m.config.vocab)
    throw Error(ErrorCode::bad_format, cat(path, ": the vocabulary has ", vocab.tokens.size(),
                                           " tokens but 'token_embd.weight' has ", m.config.vocab, " rows"));
  m.tokenizer.emplace(vocab);
  for (const auto token : vocab.tokens) m.vocabulary_bytes += static_cast<std::int64_t>(token.size()) + 24;

  ThreadPool pool(ThreadPool::count(options.threads));
  PosixFiles files;
  if (options.map_file)
    m.weights = load_packed(*m.checkpoint, pool, options.packed, {files, boot_id()}, m.packed);
  if (!m.weights) m.weights.emplace(*m.checkpoint, pool);
  if (m.weights->mapped_bytes() == 0) m.checkpoint.reset();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

const std::string& Model::path() const { return loaded_->path; }
const std::string& Model::name() const { return loaded_->name; }
std::string Model::title() const { return model_title(loaded_->name); }
const std::string& Model::architecture() const { return loaded_->config.architecture; }
std::map<std::string, std::string> Model::identity(const std::string& cache) const try {
  return model_identity(*this, cache);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
const std::vector<std::string>& Model::notes() const { return loaded_->notes; }
std::int64_t Model::context_length() const { return loaded_->config.context_length; }
std::int64_t Model::vocabulary() const { return loaded_->config.vocab; }
std::int64_t Model::parameters() const { return loaded_->parameters; }
int Model::layers() const { return static_cast<int>(loaded_->config.layers.size()); }
const Tokenizer& Model::tokenizer() const { return *loaded_->tokenizer; }
const std::string& Model::chat_template() const { return loaded_->chat_template; }
std::int64_t Model::weights_bytes() const {
  const Weights& w = *loaded_->weights;
  return w.packed_bytes() + w.shared_bytes() + w.mapped_bytes();
}
const PackedUse& Model::packed() const { return loaded_->packed; }
void Model::release_pages() const noexcept {
  loaded_->weights->release_pages();
  if (loaded_->checkpoint) loaded_->checkpoint->release_all();
}

std::int64_t Model::vocabulary_bytes() const { return loaded_->vocabulary_bytes; }

std::int64_t pack_model(const std::string& path, const std::string& out, const ModelOptions& options) try {
  const auto checkpoint =
      open_checkpoint(path, options.map_file ? MappedFile::Mode::map : MappedFile::Mode::copy);
  ThreadPool pool(ThreadPool::count(options.threads));
  PosixFiles files;
  return save_packed(*checkpoint, pool, files, out, packed_binding(*checkpoint), Flush::now);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
