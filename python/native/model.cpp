#include "model.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <ctime>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "arguments.h"
#include "kvtide/chat.h"
#include "kvtide/model.h"
#include "misuse.h"
#include "running.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

// Role, content, and a JSON object of further members.
using Messages = Sequence<nb::typed<nb::tuple, nb::str, nb::str, nb::str>>;

nb::bytes bytes_of(const std::string& text) { return nb::bytes(text.data(), text.size()); }

std::vector<TokenId> encode(const PyModel& self, const nb::bytes& text, std::optional<bool> add_bos,
                            bool special, bool continues) {
  const auto model = self.open();
  const std::string copy = text_of(text);
  const EncodeOptions options{.add_bos = add_bos, .parse_special = special, .continues = continues};
  const Running running;
  const WithoutGil others_run;
  return model->tokenizer().encode(copy, options);
}

// `chosen`: a name, or the source of a template; empty: the model's own.
ChatTemplate template_of(const Model& model, const std::string& chosen) {
  const ChatMarkers markers = ChatMarkers::of(model.tokenizer());
  if (chosen.empty()) return ChatTemplate(model.chat_template(), markers);
  const bool is_source = chosen.find("{{") != chosen.npos || chosen.find("{%") != chosen.npos;
  return is_source ? ChatTemplate(chosen, markers) : ChatTemplate::named(chosen, markers);
}

// What is to be read of a conversation, behind `held_ids` of the session, which are those of `held_text`: how many of them
// stay, what follows, and the text of all.
std::tuple<std::size_t, std::vector<TokenId>, nb::bytes> encode_chat(
    const PyModel& self, const Messages& messages, const nb::bytes& chosen, const nb::bytes& tools,
    bool open_answer, bool continues, const nb::bytes& held_text, const Sequence<TokenId>& ids) {
  const auto model = self.open();
  const std::string source = text_of(chosen), held = text_of(held_text);
  const std::vector<TokenId> held_ids = vector_of<TokenId>(ids, "held_ids");
  ChatRender render{.open_answer = open_answer, .tools = text_of(tools)};
  std::vector<ChatMessage> conversation;
  for (const nb::handle message : messages) {
    const auto parts = item_of<nb::tuple>(message, "messages");
    conversation.push_back({text_of(item_of<nb::str>(parts[0], "messages")),
                            text_of(item_of<nb::str>(parts[1], "messages")),
                            text_of(item_of<nb::str>(parts[2], "messages"))});
  }
  const std::time_t now = std::time(nullptr);
  ::localtime_r(&now, &render.now.emplace());
  EncodeOptions options;
  options.continues = continues;
  ChatRest rest;
  {
    const Running running;
    const WithoutGil others_run;
    const auto segments = template_of(*model, source).render(conversation, render);
    rest = rest_of_chat(model->tokenizer(), segments, held, held_ids, options);
  }
  return {rest.keep, std::move(rest.read), nb::bytes(rest.text.data(), rest.text.size())};
}

}  // namespace

PyModel::PyModel(const std::string& path, const ModelOptions& options) {
  const Running running;
  const WithoutGil others_run;
  model_ = std::make_shared<const Model>(path, options);
}

std::shared_ptr<const Model> PyModel::open() const {
  if (!model_) throw Misuse("closed", "this model was closed");
  return model_;
}

void bind_model(nb::module_& module) {
  nb::class_<PyModel>(module, "Model", "A loaded model; kvtide.Model wraps it.")
      .def(
          "__init__",
          [](PyModel* self, const nb::bytes& path, int threads, bool map_file, const nb::bytes& cache,
             std::int64_t cache_limit, const nb::bytes& packed, std::int64_t context) {
            ModelOptions options{.threads = threads, .map_file = map_file};
            options.context = context;
            options.packed.folder = text_of(cache);
            options.packed.limit = cache_limit;
            options.packed.file = text_of(packed);
            new (self) PyModel(text_of(path), options);
          },
          nb::arg("path"), nb::arg("threads"), nb::arg("map_file"), nb::arg("cache"), nb::arg("cache_limit"),
          nb::arg("packed"), nb::arg("context"))
      .def("close", &PyModel::close)
      .def_prop_ro("closed", &PyModel::closed)
      .def_prop_ro("path", [](const PyModel& self) { return bytes_of(self.open()->path()); })
      .def_prop_ro("name", [](const PyModel& self) { return bytes_of(self.open()->name()); })
      .def_prop_ro("title", [](const PyModel& self) { return bytes_of(self.open()->title()); })
      .def_prop_ro("notes",
                   [](const PyModel& self) {
                     std::vector<nb::bytes> notes;
                     for (const std::string& note : self.open()->notes()) notes.push_back(bytes_of(note));
                     return notes;
                   })
      .def_prop_ro("packed",
                   [](const PyModel& self) {
                     const auto model = self.open();
                     const PackedUse& packed = model->packed();
                     std::vector<nb::bytes> notes;
                     for (const std::string& note : packed.notes) notes.push_back(bytes_of(note));
                     return std::make_tuple(bytes_of(packed.file), packed.made, packed.bytes, notes);
                   })
      .def_prop_ro("architecture", [](const PyModel& self) { return self.open()->architecture(); })
      .def_prop_ro("context_length", [](const PyModel& self) { return self.open()->context_length(); })
      .def_prop_ro("vocabulary", [](const PyModel& self) { return self.open()->vocabulary(); })
      .def_prop_ro("parameters", [](const PyModel& self) { return self.open()->parameters(); })
      .def_prop_ro("layers", [](const PyModel& self) { return self.open()->layers(); })
      .def_prop_ro("weights_bytes", [](const PyModel& self) { return self.open()->weights_bytes(); })
      .def_prop_ro("vocabulary_bytes", [](const PyModel& self) { return self.open()->vocabulary_bytes(); })
      .def_prop_ro("chat_template",
                   [](const PyModel& self) { return bytes_of(self.open()->chat_template()); })
      .def("encode", &encode, nb::arg("text"), nb::arg("add_bos").none(), nb::arg("special"),
           nb::arg("continues"))
      .def("encode_chat", &encode_chat, nb::arg("messages"), nb::arg("template"), nb::arg("tools"),
           nb::arg("open_answer"), nb::arg("continues"), nb::arg("held_text"), nb::arg("held_ids"))
      .def(
          "decode",
          [](const PyModel& self, const Sequence<TokenId>& ids, bool special) {
            return bytes_of(self.open()->tokenizer().decode(vector_of<TokenId>(ids, "ids"), special));
          },
          nb::arg("ids"), nb::arg("special"))
      .def(
          "piece",
          [](const PyModel& self, TokenId id, bool special) {
            return bytes_of(self.open()->tokenizer().piece(id, special));
          },
          nb::arg("id"), nb::arg("special"))
      .def(
          "find",
          [](const PyModel& self, const nb::bytes& token) {
            return self.open()->tokenizer().find(view_of(token));
          },
          nb::arg("token"))
      .def_prop_ro("bos", [](const PyModel& self) { return self.open()->tokenizer().bos(); })
      .def_prop_ro("eos", [](const PyModel& self) { return self.open()->tokenizer().eos(); })
      .def_prop_ro("adds_bos", [](const PyModel& self) { return self.open()->tokenizer().adds_bos(); })
      .def(
          "ends_text", [](const PyModel& self, TokenId id) { return self.open()->tokenizer().ends_text(id); },
          nb::arg("id"));
  module.def(
      "model_path",
      [](const nb::bytes& model, const nb::bytes& folder) {
        return bytes_of(model_path(text_of(model), text_of(folder)));
      },
      nb::arg("model"), nb::arg("folder"));
  module.def(
      "stored_model",
      [](const nb::bytes& name, const nb::bytes& hugging_face, const nb::bytes& ollama,
         const nb::bytes& lmstudio) -> std::optional<nb::bytes> {
        const auto path =
            stored_model(text_of(name), {text_of(hugging_face), text_of(ollama), text_of(lmstudio)});
        if (!path) return std::nullopt;
        return bytes_of(*path);
      },
      nb::arg("name"), nb::arg("hugging_face"), nb::arg("ollama"), nb::arg("lmstudio"));
  module.def("chat_template_names", [] {
    std::vector<std::string> names;
    for (const std::string_view name : ChatTemplate::names()) names.emplace_back(name);
    return names;
  });
}

}  // namespace kvtide::python
