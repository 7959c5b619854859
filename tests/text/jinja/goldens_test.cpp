// What jinja2 renders in the environment of transformers: tools/references/compare_chat_templates.py wrote the file.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

#include "tests/text/jinja/rendering.h"

namespace kvtide::jinja {
namespace {

JsonValue goldens() {
  std::ifstream file(KVTIDE_GOLDENS "/chat_templates/jinja2.json", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return JsonValue::parse(text, "jinja2.json");
}

TEST(ChatTemplateGoldens, WhatJinja2RendersIsRenderedAndWhatItRefusesIsRefused) {
  const JsonValue all = goldens();
  std::map<std::string, std::shared_ptr<Mapping>> worlds;
  for (const auto& [name, variables] : *all.find("worlds")->object())
    worlds[name] = variables_from_json(variables);
  EXPECT_GT(all.find("cases")->list()->size(), 700u);
  for (const JsonValue& one : *all.find("cases")->list()) {
    const std::string& source = *one.find("template")->text();
    const std::string* wanted = one.find("text")->text();
    try {
      const MarkedText text = Template(source).render(*worlds.at(*one.find("world")->text()), test_time());
      ASSERT_NE(wanted, nullptr) << source << "\nrenders " << text.bytes;
      EXPECT_EQ(text.bytes, *wanted) << source;
    } catch (const Error& error) {
      EXPECT_EQ(wanted, nullptr) << source << "\n" << error.message();
      EXPECT_TRUE(error.message().starts_with("chat template, line ")) << error.message();
    }
  }
}

}  // namespace
}  // namespace kvtide::jinja
