// zaya_test.cpp: what a model whose layers carry convolutions and choose experts must keep of all promises:
// bits, taking back, forks, snapshots; and the two ages of its checkpoints.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/mapped_file.h"
#include "formats/safetensors.h"
#include "kernels/kernels.h"
#include "kvtide/stateful.h"
#include "tests/engine/carried.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::expect_refused;
using testing::expect_same_carried;
using testing::random_tokens;
using testing::same_bits;
using testing::short_session;

constexpr const char* kFolders[] = {KVTIDE_GOLDENS "/folders/zaya-f16", KVTIDE_GOLDENS "/folders/zaya-i8"};

TEST(Zaya, LogitsAreTheSameBitsForEveryChunkAndThreadCount_OnEveryKernelTable_InBothModes) {
  for (const char* folder : kFolders) {
    const Model model(folder);
    const auto tokens = random_tokens(150, model.vocabulary(), 1);
    for (const Kernels* kernels : available_kernels())
      for (const bool exact : {false, true}) {
        SessionOptions options = short_session();
        options.kernels = kernels->isa;
        options.exact = exact;
        options.prefill_chunk = 150;
        const auto wanted = all_logits(model, options, tokens);
        for (const auto& [chunk, threads] :
             std::map<std::int64_t, int>{{1, 1}, {2, 8}, {3, 2}, {7, 3}, {33, 4}, {64, 1}}) {
          options.prefill_chunk = chunk;
          options.threads = threads;
          ASSERT_TRUE(same_bits(all_logits(model, options, tokens), wanted))
              << folder << " " << kernels->isa << " chunk " << chunk << " threads " << threads;
        }
      }
  }
}

// A draft that is refused: what follows has the bits of a text that never held it.
TEST(Zaya, UpToFourTokensCanBeTakenBack_AsIfTheyHadNeverBeenRead) {
  for (const char* folder : kFolders) {
    const Model model(folder);
    const auto tokens = random_tokens(90, model.vocabulary(), 2),
               other = random_tokens(20, model.vocabulary(), 3);
    for (const std::int64_t chunk : {1, 5, 64})
      for (std::size_t back = 1; back <= 4; ++back) {
        SessionOptions options = short_session();
        options.prefill_chunk = chunk;
        Session session(model, options), fresh(model, options);
        session.read(tokens);
        session.apply(Truncate{static_cast<Pos>(tokens.size() - back)});
        fresh.read(std::span(tokens).first(tokens.size() - back));
        expect_same_carried(session, fresh);
        ASSERT_TRUE(same_bits(all_logits(session, other), all_logits(fresh, other)))
            << folder << " chunk " << chunk << " back " << back;
        expect_same_carried(session, fresh);
      }
  }
}

TEST(Zaya, DraftsOfFourCanBeTakenBackAgainAndAgain) {
  const Model model(kFolders[0]);
  const auto tokens = random_tokens(60, model.vocabulary(), 4),
             drafts = random_tokens(200, model.vocabulary(), 5);
  Session session(model, short_session()), fresh(model, short_session());
  std::vector<float> got;
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    session.read({&tokens[at], 1});
    got.insert(got.end(), session.logits().begin(), session.logits().end());
    session.read(std::span(drafts).subspan(at * 3, 1 + at % 4));
    session.apply(Truncate{static_cast<Pos>(at) + 1});
  }
  EXPECT_TRUE(same_bits(got, all_logits(fresh, tokens)));
}

TEST(Zaya, TakingBackMoreIsRefusedWithTheReason_UnlessMoreSlackIsAskedFor) {
  const Model model(kFolders[0]);
  const auto tokens = random_tokens(60, model.vocabulary(), 6);
  Session session(model, short_session());
  EXPECT_EQ(session.options().slack, 4);
  session.read(tokens);
  expect_refused(
      ErrorCode::invalid_argument,
      "tensor 'layers.0.conv_state' of that position was not kept (a slack of 4 keeps that many); the "
      "smallest that works is 56",
      [&] { session.apply(Truncate{55}); });
  EXPECT_EQ(session.position(), 60);
  session.apply(Truncate{56});
  SessionOptions options = short_session();
  options.slack = 30;
  Session patient(model, options), fresh(model, options);
  patient.read(tokens);
  patient.apply(Truncate{30});
  fresh.read(std::span(tokens).first(30));
  expect_same_carried(patient, fresh);
}

TEST(Zaya, ASnapshotGoesOnWithTheSameBits_AndCanStillBeTakenBack) {
  const testing::TemporaryFolder folder;
  const Model model(kFolders[0]);
  const auto tokens = random_tokens(70, model.vocabulary(), 7),
             other = random_tokens(20, model.vocabulary(), 8);
  for (const Pos back : {0, 3}) {
    Session session(model, short_session()), restored(model, short_session()), fresh(model, short_session());
    session.read(tokens);
    session.save(folder.path("zaya.kv"));
    restored.load(folder.path("zaya.kv"));
    expect_same_carried(restored, session);
    restored.apply(Truncate{70 - back});
    fresh.read(std::span(tokens).first(static_cast<std::size_t>(70 - back)));
    EXPECT_TRUE(same_bits(all_logits(restored, other), all_logits(fresh, other))) << back;
  }
}

TEST(Zaya, ForksGoTheirOwnWays) {
  const Model model(kFolders[1]);
  const auto tokens = random_tokens(50, model.vocabulary(), 9);
  Session session(model, short_session());
  session.read(tokens);
  Session fork = session.fork();
  for (const std::uint64_t seed : {10u, 11u}) {
    const auto more = random_tokens(15, model.vocabulary(), seed);
    Session fresh(model, short_session());
    fresh.read(tokens);
    EXPECT_TRUE(same_bits(all_logits(seed == 10 ? session : fork, more), all_logits(fresh, more)));
    expect_same_carried(seed == 10 ? session : fork, fresh);
  }
}

TEST(Zaya, WhatLayersCarryHasNamesAndShapes_AndIsZeroAtFirst) {
  const Model model(kFolders[0]);
  Session session(model, short_session());
  const auto empty = session.state().carried();
  ASSERT_EQ(empty.size(), 4u);
  EXPECT_EQ(empty[2].name, "layers.1.conv_state");
  EXPECT_EQ(empty[2].shape, (std::vector<std::int64_t>{48, 2}));
  EXPECT_EQ(empty[3].name, "layers.1.prev_value");
  EXPECT_EQ(empty[3].shape, (std::vector<std::int64_t>{8}));
  EXPECT_EQ(empty[3].values, std::vector<float>(8, 0.0f));
  // The older of two columns is the newer one of the token before.
  session.read(random_tokens(9, model.vocabulary(), 12));
  const auto before = session.state().carried()[0].values;
  session.read(random_tokens(1, model.vocabulary(), 13));
  const auto after = session.state().carried()[0].values;
  for (std::size_t c = 0; c < 48; ++c) {
    EXPECT_EQ(after[2 * c], before[2 * c + 1]);
    EXPECT_NE(after[2 * c + 1], 0.0f);
  }
}

TEST(Zaya, RowsAloneCannotBeContinued_AndPositionsCannotBeDropped) {
  const Model model(kFolders[0]);
  Session session(model, short_session());
  const auto tokens = random_tokens(10, model.vocabulary(), 14);
  session.read(tokens);
  const State rows(session.state().shape(), 10, tokens);
  expect_refused(ErrorCode::invalid_argument, "rows alone cannot be continued",
                 [&] { session.restore(rows); });
  expect_refused(ErrorCode::invalid_argument, "tensor 'layers.0.conv_state' holds something of all of them",
                 [&] {
                   session.apply(Drop{{2, 5}});
                 });
  expect_refused(ErrorCode::invalid_argument, "carry more than rows from token to token",
                 [&] { StatefulModel(Model(kFolders[1]), short_session()); });
  EXPECT_EQ(session.position(), 10);
}

// A folder whose config or tensors are to be changed.
class Copy {
 public:
  explicit Copy(const char* source) : path_(folder_.path("copy")) {
    std::filesystem::copy(source, path_, std::filesystem::copy_options::recursive);
  }
  const std::string& path() const { return path_; }
  std::string config() const {
    std::ifstream file(path_ + "/config.json");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  void set_config(const std::string& text) const {
    std::ofstream(path_ + "/config.json", std::ios::trunc) << text;
  }
  // Adds a member to the config.
  void say(const std::string& member) const {
    std::string text = config();
    set_config(text.replace(text.find('{'), 1, "{" + member + ","));
  }
  void rename_tensors_of_halves() const;
  // Every key temperature becomes this half float.
  void set_temperatures(std::uint16_t half) const {
    const std::string file = path_ + "/model.safetensors";
    std::string bytes;
    {
      std::ifstream in(file, std::ios::binary);
      bytes.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
      const MappedFile mapped(file);
      const SafeTensors tensors = SafeTensors::parse(mapped.bytes(), file);
      for (const auto& [name, tensor] : tensors.tensors)
        if (name.ends_with("qk_norm.temp"))
          for (std::size_t i = 0; i < tensor.bytes.size(); i += sizeof half)
            std::memcpy(bytes.data() + (tensor.bytes.data() - mapped.bytes().data()) + i, &half, sizeof half);
    }
    std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  }

 private:
  testing::TemporaryFolder folder_;
  std::string path_;
};

// The name that a tensor has where halves of blocks are counted; of experts: up to the expert's number.
std::string name_of_halves(const std::string& name, int blocks) {
  if (name == "model.norm.weight") return "model.final_norm.weight";
  if (name.starts_with("model.input_hidden_states_"))
    return "model.layers.0.res_scale.hidden_states_" + name.substr(std::strlen("model.input_hidden_states_"));
  if (!name.starts_with("model.layers.")) return name;
  const int block = name[std::strlen("model.layers.")] - '0';
  std::string rest = name.substr(std::strlen("model.layers.0."));
  const struct {
    const char *from, *to;
    int half;
  } parts[] = {{"input_layernorm", "input_norm", 0},
               {"self_attn.qkv_proj.q_proj", "self_attn.qkv.linear_q", 0},
               {"self_attn.qkv_proj.k_proj", "self_attn.qkv.linear_k", 0},
               {"self_attn.qkv_proj.v_proj_current", "self_attn.qkv.val_proj1", 0},
               {"self_attn.qkv_proj.v_proj_delayed", "self_attn.qkv.val_proj2", 0},
               {"self_attn.qkv_proj.conv_qk_depthwise", "self_attn.qkv.conv_qk.0", 0},
               {"self_attn.qkv_proj.conv_qk_grouped", "self_attn.qkv.conv_qk.1", 0},
               {"self_attn.qk_norm.temp", "self_attn.qkv.temp", 0},
               {"self_attn.o_proj", "self_attn.o_proj", 0},
               {"post_attention_layernorm", "input_norm", 1},
               {"post_attention_residual_scale", "res_scale", 1},
               {"mlp.gate.router_mlp.norm", "zaya_block.router.rmsnorm_eda", 1},
               {"mlp.gate.router_mlp.fc1", "zaya_block.router.router_mlp.0", 1},
               {"mlp.gate.router_mlp.fc2", "zaya_block.router.router_mlp.2", 1},
               {"mlp.gate.router_mlp.out_proj", "zaya_block.router.router_mlp.4", 1},
               {"mlp.gate", "zaya_block.router", 1},
               {"mlp.experts.gate_up_proj", "zaya_block.experts.local_experts.#.linear_fc1.weight", 1},
               {"mlp.experts.down_proj", "zaya_block.experts.local_experts.#.linear_fc2.weight", 1},
               {"post_mlp_residual_scale", "res_scale", 2}};
  for (const auto& part : parts)
    if (rest.starts_with(part.from)) {
      rest.replace(0, std::strlen(part.from), part.to);
      if (part.half == 2 && block + 1 == blocks) return "model." + rest;
      return "model.layers." + std::to_string(2 * block + part.half) + "." + rest;
    }
  ADD_FAILURE() << name << " has no older name";
  return name;
}

void Copy::rename_tensors_of_halves() const {
  const std::string file = path_ + "/model.safetensors";
  std::string header, data;
  {
    const MappedFile mapped(file);
    const SafeTensors tensors = SafeTensors::parse(mapped.bytes(), file);
    const auto add = [&](const std::string& name, const std::string& dtype,
                         std::span<const std::int64_t> shape, std::span<const std::byte> bytes) {
      std::string extents;
      for (const std::int64_t extent : shape)
        extents += (extents.empty() ? "" : ",") + std::to_string(extent);
      header += (header.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" +
                extents + "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
                std::to_string(data.size() + bytes.size()) + "]}";
      data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    for (const auto& [name, tensor] : tensors.tensors) {
      std::string old = name_of_halves(name, 2);
      const std::size_t number = old.find('#');
      if (number == old.npos) {
        add(old, tensor.dtype, tensor.shape, tensor.bytes);
        continue;
      }
      const auto experts = static_cast<std::size_t>(tensor.shape[0]), size = tensor.bytes.size() / experts;
      for (std::size_t e = 0; e < experts; ++e) {
        std::string one = old;
        add(one.replace(number, 1, std::to_string(e)), tensor.dtype, std::span(tensor.shape).subspan(1),
            tensor.bytes.subspan(e * size, size));
      }
    }
  }
  header += "}";
  const std::uint64_t length = header.size();
  std::ofstream(file, std::ios::binary | std::ios::trunc)
      << std::string(reinterpret_cast<const char*>(&length), sizeof length) << header << data;
}

const char* const kOldConfig =
    R"({"model_type":"zaya","cca":true,"num_hidden_layers":4,"hidden_size":32,"num_attention_heads":2,)"
    R"("cca_num_q_heads":[4,0,4,0],"num_key_value_heads":2,"num_query_groups":2,"num_query_groups_list":[2,0,2,0],)"
    R"("kv_channels":8,"ffn_hidden_size":32,"num_experts":4,"moe_router_topk":1,"zaya_mlp_expansion":8,)"
    R"("zaya_use_eda":true,"zaya_use_mod":true,"zaya_high_prec":true,"norm_epsilon":1e-5,)"
    R"("partial_rotary_factor":0.5,"rope_theta":5000000,"rope_scaling":false,"scale_residual_merge":true,)"
    R"("residual_in_fp32":true,"sliding_window":null,"attention_bias":false,)"
    R"("lm_head_bias":false,"add_bias_linear":false,"tie_word_embeddings":true,)"
    R"("max_position_embeddings":256,"vocab_size":64)";

TEST(Zaya, TensorsAndConfigsThatCountHalvesAreTheSameModel) {
  const Copy today(kFolders[0]), halves(kFolders[0]);
  // The older config knows no windows.
  std::string config = today.config();
  const std::string sliding = "\"hybrid_sliding\"\n  ]";
  config.replace(config.find(sliding), sliding.size(), "\"hybrid\"\n  ]");
  today.set_config(config);
  const auto tokens = random_tokens(80, 64, 15);
  const auto wanted = all_logits(Model(today.path()), short_session(), tokens);
  halves.rename_tensors_of_halves();
  halves.set_config(std::string(kOldConfig) + R"(,"kvtide_skip_slot":"zero"})");
  EXPECT_TRUE(same_bits(all_logits(Model(halves.path()), short_session(), tokens), wanted));
  // Each layout of the tensors goes with each config.
  halves.set_config(config);
  EXPECT_TRUE(same_bits(all_logits(Model(halves.path()), short_session(), tokens), wanted));
}

TEST(Zaya, TheSkipSlotIsAChoice_WithTheDefaultOfEachAge) {
  const Copy today(kFolders[0]), identity(kFolders[0]), halves(kFolders[0]), zero(kFolders[0]);
  const auto tokens = random_tokens(80, 64, 16);
  const auto logits = [&](const Copy& copy) {
    return all_logits(Model(copy.path()), short_session(), tokens);
  };
  std::string config = today.config();
  const std::string sliding = "\"hybrid_sliding\"\n  ]";
  config.replace(config.find(sliding), sliding.size(), "\"hybrid\"\n  ]");
  today.set_config(config);
  zero.set_config(config);
  zero.say("\"kvtide_skip_slot\":\"zero\"");
  identity.set_config(config);
  identity.say("\"kvtide_skip_slot\":\"identity\"");
  halves.set_config(std::string(kOldConfig) + "}");
  EXPECT_TRUE(same_bits(logits(today), logits(zero)));
  EXPECT_TRUE(same_bits(logits(halves), logits(identity)));
  EXPECT_FALSE(same_bits(logits(zero), logits(identity)));
}

// Of older folders: exp(temperature), after it is clamped to at most 2.
TEST(Zaya, ATemperatureMayBeKeptAsItsLogarithm) {
  const Copy plain(kFolders[0]), logarithm(kFolders[0]), clamped(kFolders[0]);
  const auto logits = [](const Copy& copy, std::uint16_t half, const char* more) {
    copy.set_temperatures(half);
    copy.set_config(std::string(kOldConfig) + more + "}");
    return all_logits(Model(copy.path()), short_session(), random_tokens(30, 64, 17));
  };
  const char* const kClamp = R"(,"clamp_temp":true)";
  // Half floats: 2, 5, and ln 2 to eleven bits.
  const auto two = logits(plain, 0x4000, ""), from_logarithm = logits(logarithm, 0x398c, kClamp);
  double worst = 0.0;
  for (std::size_t i = 0; i < two.size(); ++i)
    worst = std::max(worst, static_cast<double>(std::fabs(two[i] - from_logarithm[i])));
  EXPECT_LT(worst, 0.02);
  EXPECT_TRUE(same_bits(logits(clamped, 0x4500, kClamp), logits(logarithm, 0x4000, kClamp)));
  EXPECT_FALSE(same_bits(logits(plain, 0x4500, ""), two));
}

TEST(Zaya, NumbersThatTheTensorsContradictAreRefusedByTheTensorsName) {
  const struct {
    const char *from, *to, *says;
  } lies[] = {
      {"\"num_experts\": 4", "\"num_experts\": 5",
       "router_mlp.out_proj.weight' has shape [5, 8]; the model's "
       "metadata asks for [6, 8]"},
      {"\"head_dim\": 8", "\"head_dim\": 16",
       "q_proj.weight' has shape [32, 32]; the model's metadata asks for "
       "[64, 32]"},
      {"\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4", "k_proj.weight' has shape [16, 32]"},
      {"\"moe_intermediate_size\": 16", "\"moe_intermediate_size\": 8",
       "mlp.experts.gate_up_proj' has shape [4, 32, 32]; the model's metadata asks for [4, 16, 32]"},
      {"\"router_hidden_size\": 8", "\"router_hidden_size\": 16", "gate.down_proj.weight' has shape [8, 32]"},
      {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "'layer_types' has 2 entries for 3 layers"}};
  for (const auto& lie : lies) {
    const Copy copy(kFolders[0]);
    std::string config = copy.config();
    config.replace(config.find(lie.from), std::strlen(lie.from), lie.to);
    copy.set_config(config);
    expect_refused(ErrorCode::bad_format, lie.says, [&] { Model(copy.path()); });
  }
}

TEST(Zaya, AModelThatMixesTheNamesOfBothAgesIsRefused_InsteadOfTakingAnotherBlocksTensor) {
  const Copy copy(kFolders[0]);
  copy.rename_tensors_of_halves();
  // Without the merge of the first block's experts, the one behind the last block must not stand in for it.
  const std::string file = copy.path() + "/model.safetensors";
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::string name = "model.layers.2.res_scale.residual_bias";
  bytes.replace(bytes.find(name), name.size(), "model.layers.2.res_scale.residual_bia_");
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  expect_refused(ErrorCode::bad_format, "the tensor 'model.layers.2.res_scale.residual_bias' is missing",
                 [&] { Model(copy.path()); });
}

}  // namespace
}  // namespace kvtide
