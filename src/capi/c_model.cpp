// c_model.cpp: the part of kvtide.h about models and their tokens.
#include <limits>
#include <span>
#include <string_view>

#include "capi/handles.h"

using namespace kvtide;
using namespace kvtide::capi;

extern "C" {

int32_t kvtide_model_load(const char* path, kvtide_model** model) {
  return made(model, [&](kvtide_model& handle) {
    given(path, "path");
    handle.made = std::make_shared<const Model>(path);
  });
}

void kvtide_model_free(kvtide_model* model) { delete model; }

const char* kvtide_model_error(const kvtide_model* model) {
  return model == nullptr ? "there is no handle" : model->message.c_str();
}

int64_t kvtide_model_vocabulary(kvtide_model* model) {
  return guarded(model, [&](const Model&) { return model->made->vocabulary(); });
}

int64_t kvtide_model_context_length(kvtide_model* model) {
  return guarded(model, [&](const Model&) { return model->made->context_length(); });
}

int64_t kvtide_encode(kvtide_model* model, const char* text, size_t size, bool continues, int32_t* tokens,
                      size_t capacity) {
  return guarded(model, [&](const Model& m) {
    check_array(text, size, "text");
    EncodeOptions options;
    options.continues = continues;
    return copied(m.tokenizer().encode(std::string_view(size > 0 ? text : "", size), options), tokens,
                  capacity, "tokens");
  });
}

int64_t kvtide_decode(kvtide_model* model, const int32_t* tokens, size_t count, char* text, size_t capacity) {
  return guarded(model, [&](const Model& m) {
    check_array(tokens, count, "tokens");
    return copied(m.tokenizer().decode(std::span(tokens, count)), text, capacity, "text");
  });
}

int32_t kvtide_ends_text(kvtide_model* model, int32_t token) {
  return guarded(model, [&](const Model& m) -> int32_t { return m.tokenizer().ends_text(token) ? 1 : 0; });
}
}
