// info.h: what the server says of itself: GET /health, /v1/models, /metrics.
#pragma once

#include <memory>

#include "serve/routes/service.h"

namespace kvtide::serve {

void health(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void list_models(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
void one_model(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);
// Prometheus' text format: the names that Kubernetes' inference gateway reads, and the server's own.
void metrics(Service& service, const Request& request, const std::shared_ptr<Reply>& reply);

}  // namespace kvtide::serve
