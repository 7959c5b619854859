// llama.h: the routes of llama-server: /completion, /tokenize, /detokenize, /apply-template, /props.
#pragma once

#include <memory>

#include "serve/routes/service.h"

namespace kvtide::serve {

void llama_completion(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void tokenize(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void detokenize(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void apply_template(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void props(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
