// SPDX-License-Identifier: Apache-2.0
//
// safetensors: what is written is read back to the bit; every hostile file is refused with file, tensor, given and
// allowed, and none is believed.
#include "safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>

#include "command.h"
#include "tools/run_cli.h"

namespace fascore::cli {
namespace {

using testing::safetensors_bytes;
using testing::Scratch;
using testing::write_bytes;

/// The refusal's text, with the file's path replaced by FILE; empty when the file was accepted.
std::string refusal_of(const std::string& bytes) {
    const Scratch scratch;
    const std::string path = scratch.path("in.safetensors");
    write_bytes(path, bytes);
    try {
        const SafetensorsFile file(path);
    } catch (const Failure& failure) {
        EXPECT_EQ(failure.exit_status(), exit_bad_input);
        std::string text = failure.what();
        EXPECT_EQ(text.rfind(path, 0), 0U) << text;
        return "FILE" + text.substr(path.size());
    }
    return "";
}

HostTensor counted(const char* name, DType dtype, std::vector<std::int64_t> shape) {
    HostTensor tensor(name, dtype, std::move(shape));
    tensor.allocate();
    for (std::int64_t index = 0; index < tensor.count(); ++index) tensor.store(index, static_cast<double>(index % 2));
    return tensor;
}

TEST(Safetensors, round_trip_of_every_dtype) {
    const Scratch scratch;
    const std::string path = scratch.path("all.safetensors");
    std::vector<HostTensor> written;
    // Narrow before wide, odd counts: the writer must reorder to keep elements aligned.
    written.push_back(counted("u8", DType::u8, {3}));
    written.push_back(counted("bool", DType::boolean, {1, 5}));
    written.push_back(counted("e4m3", DType::f8e4m3, {5}));
    written.push_back(counted("e5m2", DType::f8e5m2, {1, 3}));
    written.push_back(counted("f16", DType::f16, {7}));
    written.push_back(counted("bf16", DType::bf16, {3, 3}));
    written.push_back(counted("f32", DType::f32, {5, 1, 1}));
    written.push_back(counted("f64", DType::f64, {2, 3}));
    written.push_back(counted("empty", DType::f32, {4, 0, 2}));
    std::vector<const HostTensor*> list;
    for (const HostTensor& tensor : written) list.push_back(&tensor);
    write_safetensors(path, list, {{"producer", "test \"quoted\""}});

    const SafetensorsFile file(path);
    EXPECT_EQ(file.entries().size(), written.size());
    for (const HostTensor& wanted : written) {
        HostTensor got = file.describe(wanted.name());
        EXPECT_EQ(got.dtype(), wanted.dtype());
        EXPECT_EQ(got.shape(), wanted.shape());
        EXPECT_EQ(file.entries().at(wanted.name()).begin % static_cast<std::uint64_t>(size_of(wanted.dtype())), 0U);
        file.load(got);
        for (std::int64_t index = 0; index < wanted.count(); ++index) EXPECT_EQ(got.load(index), wanted.load(index));
    }
    EXPECT_EQ(scratch.files(), std::vector<std::string>{"all.safetensors"}) << "a temporary file was left behind";
}

TEST(Safetensors, bits_survive) {
    const Scratch scratch;
    HostTensor tensor("x", DType::f32, {4});
    tensor.allocate();
    const double values[] = {-0.0, std::numeric_limits<double>::infinity(), 1e-45, -3.4028234663852886e38};
    for (std::int64_t index = 0; index < 4; ++index) tensor.store(index, values[index]);
    write_safetensors(scratch.path("x"), {&tensor});
    const SafetensorsFile file(scratch.path("x"));
    HostTensor got = file.describe("x");
    file.load(got);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(got.data()), got.bytes()),
              std::string(reinterpret_cast<const char*>(tensor.data()), tensor.bytes()));
}

TEST(Safetensors, all_patterns_of_8_bits_survive) {
    const Scratch scratch;
    HostTensor e4m3("query", DType::f8e4m3, {256}), e5m2("key", DType::f8e5m2, {4, 64});
    for (HostTensor* tensor : {&e4m3, &e5m2}) {
        tensor->allocate();
        for (int bits = 0; bits < 256; ++bits) tensor->data()[bits] = static_cast<std::byte>(bits);
    }
    write_safetensors(scratch.path("x"), {&e4m3, &e5m2});
    const SafetensorsFile file(scratch.path("x"));
    EXPECT_EQ(file.entries().at("query").dtype_name, "F8_E4M3");
    EXPECT_EQ(file.entries().at("key").dtype_name, "F8_E5M2");
    for (const HostTensor* wanted : {&e4m3, &e5m2}) {
        HostTensor got = file.describe(wanted->name());
        ASSERT_EQ(got.dtype(), wanted->dtype());
        file.load(got);
        for (int bits = 0; bits < 256; ++bits) EXPECT_EQ(got.data()[bits], static_cast<std::byte>(bits));
    }
    // What the bytes mean, by the types' definitions: 448, NaN and 2^-9; 57344, infinity and 2^-16.
    EXPECT_EQ(e4m3.load(0x7E), 448.0);
    EXPECT_TRUE(std::isnan(e4m3.load(0xFF)));
    EXPECT_EQ(e4m3.load(0x81), -0x1p-9);
    EXPECT_EQ(e5m2.load(0x7B), 57344.0);
    EXPECT_EQ(e5m2.load(0xFC), -std::numeric_limits<double>::infinity());
    EXPECT_EQ(e5m2.load(0x01), 0x1p-16);
}

TEST(Safetensors, header_of_another_writer_is_read) {
    // No padding, odd offsets, metadata, a dtype we do not load beside one we do.
    const std::string header =
        R"({"__metadata__":{"format":"pt"},"ids":{"dtype":"I64","shape":[1],"data_offsets":[1,9]},)"
        R"("flag":{"dtype":"BOOL","shape":[],"data_offsets":[0,1]},)"
        R"("x":{"dtype":"F32","shape":[1],"data_offsets":[9,13]}})";
    const Scratch scratch;
    write_bytes(scratch.path("f"), safetensors_bytes(header, std::string("\1\0\0\0\0\0\0\0\0\0\0\x80\x3f", 13)));
    const SafetensorsFile file(scratch.path("f"));
    HostTensor x = file.describe("x");
    file.load(x);
    EXPECT_EQ(x.load(0), 1.0);
    EXPECT_THROW((void)file.describe("ids"), Failure);   // known, not loadable
    EXPECT_THROW((void)file.describe("flag"), Failure);  // no axis
    EXPECT_THROW((void)file.describe("y"), Failure);     // absent
}

struct Hostile {
    const char* name;
    std::string bytes;
    const char* refusal;  ///< must occur in the text
};

std::string one(const std::string& entry, const std::string& data = std::string(8, 'x')) {
    return safetensors_bytes("{\"t\":" + entry + "}", data);
}

std::vector<Hostile> hostile_files() {
    const std::string good = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
    std::string deep = "{\"t\":";
    for (int level = 0; level < 100000; ++level) deep += "[";
    return {
        {"empty_file", "", "FILE: file has 0 bytes, a safetensors file has at least 10"},
        {"seven_bytes", "1234567", "FILE: file has 7 bytes"},
        {"header_longer_than_file", safetensors_bytes(good, "", good.size() + 1),
         "FILE: header length is 55, must be at most 54"},
        {"header_length_huge", safetensors_bytes(good, "", ~std::uint64_t{0}),
         "FILE: header length is 18446744073709551615, must be at most"},
        {"header_length_negative_when_added", safetensors_bytes(good, "", ~std::uint64_t{0} - 7),
         "FILE: header length is"},
        {"header_length_zero", safetensors_bytes("", ""), "FILE: header is not JSON"},
        {"header_cut_inside", safetensors_bytes(good.substr(0, 20), ""), "FILE: header is not JSON"},
        {"header_shorter_than_json", safetensors_bytes(good, "", 20), "FILE: header is not JSON"},
        {"header_is_not_json", safetensors_bytes("hello", ""), "FILE: header is not JSON: parse error"},
        {"header_is_a_list", safetensors_bytes("[1,2]", ""), "FILE: header is [1,2], must be an object"},
        {"header_not_utf8", safetensors_bytes("{\"\xff\xfe\":1}", ""), "FILE: header is not JSON"},
        {"header_nested_without_end", safetensors_bytes(deep, ""), "FILE: header is nested deeper than 3 levels"},
        {"header_with_tail", safetensors_bytes(good + "{}", std::string(8, 'x')), "FILE: header is not JSON"},
        {"name_twice",
         safetensors_bytes(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                           R"("t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                           std::string(8, 'x')),
         "FILE: \"t\": named twice in the header, must be named once"},
        {"key_twice", one(R"({"dtype":"F32","dtype":"U8","shape":[8],"data_offsets":[0,8]})"),
         "FILE: \"dtype\": named twice"},
        {"entry_is_a_number", one("7"), "FILE: \"t\": 7, must be an object with dtype, shape and data_offsets"},
        {"dtype_absent", one(R"({"shape":[2],"data_offsets":[0,8]})"), "FILE: \"t\": dtype is absent, must be given"},
        {"shape_absent", one(R"({"dtype":"F32","data_offsets":[0,8]})"), "FILE: \"t\": shape is absent, must be given"},
        {"offsets_absent", one(R"({"dtype":"F32","shape":[2]})"), "FILE: \"t\": data_offsets is absent, must be given"},
        {"dtype_unknown", one(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"),
         "FILE: \"t\": dtype is \"F31\", must be F64, F32, BF16, F16, F8_E4M3, F8_E5M2, BOOL or U8"},
        {"dtype_is_a_number", one(R"({"dtype":32,"shape":[2],"data_offsets":[0,8]})"),
         "FILE: \"t\": dtype is 32, must be"},
        {"shape_is_text", one(R"({"dtype":"F32","shape":"2","data_offsets":[0,8]})"),
         "FILE: \"t\": shape is \"2\", must be a list"},
        {"extent_negative", one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"),
         "FILE: \"t\": shape is [-2], extents must be"},
        {"extent_fraction", one(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"),
         "FILE: \"t\": shape is [2.0], extents must be"},
        {"extent_above_int64", one(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]})"),
         "extents must be integers"},
        {"size_overflows", one(R"({"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]})"),
         "FILE: \"t\": shape is [4611686018427387906], its size in bytes must be below 2^64"},
        {"product_overflows", one(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})"),
         "its size in bytes must be below 2^64"},
        {"shape_bigger_than_span", one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
         "FILE: \"t\": data_offsets [0,8] span 8 bytes, must span 12 for F32 of shape [3]"},
        {"shape_smaller_than_span", one(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})"),
         "span 8 bytes, must span 4"},
        {"offsets_backwards", one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), "must be begin <= end <= 8"},
        {"offsets_out_of_range", one(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})"),
         "FILE: \"t\": data_offsets is [4,12], must be begin <= end <= 8, the bytes of data in the file"},
        {"offsets_wrap", one(R"({"dtype":"U8","shape":[8],"data_offsets":[18446744073709551608,0]})"),
         "must be begin <= end <= 8"},
        {"offsets_negative", one(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})"),
         "must be two integers [begin, end]"},
        {"offsets_three", one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})"),
         "must be two integers [begin, end]"},
        {"data_cut_short", safetensors_bytes(good, "1234567"), "must be begin <= end <= 7"},
        {"data_too_long", safetensors_bytes(good, "123456789"), "FILE: file has 9 bytes of data, its tensors span 8"},
        {"overlap",
         safetensors_bytes(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                           R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                           std::string(8, 'x')),
         "FILE: \"b\": data_offsets begin at 4, inside another tensor; must begin at 5"},
        {"gap",
         safetensors_bytes(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                           R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                           std::string(8, 'x')),
         "FILE: \"b\": data_offsets begin at 4, which leaves a gap; must begin at 3"},
        {"metadata_is_not_text", safetensors_bytes(R"({"__metadata__":{"a":1}})", ""),
         "__metadata__ is {\"a\":1}, must map text to text"},
    };
}

class HostileFile : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileFile, is_refused) {
    const std::string text = refusal_of(GetParam().bytes);
    EXPECT_NE(text.find(GetParam().refusal), std::string::npos) << "refusal: " << text;
    EXPECT_LT(text.size(), 500U) << "a hostile file must not fill the terminal";
}

INSTANTIATE_TEST_SUITE_P(Safetensors, HostileFile, ::testing::ValuesIn(hostile_files()),
                         [](const auto& instance) { return instance.param.name; });

TEST(Safetensors, a_sound_file_is_accepted) {
    // The template the hostile ones are bent from: proves that they fail for their own reason.
    EXPECT_EQ(refusal_of(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})")), "");
    EXPECT_EQ(refusal_of(safetensors_bytes("{}  ", "")), "");
}

TEST(Safetensors, what_is_no_file_is_refused) {
    EXPECT_THROW(SafetensorsFile("/dev/null"), Failure);
    EXPECT_THROW(SafetensorsFile("/tmp"), Failure);
    EXPECT_THROW(SafetensorsFile("/nonexistent/file"), Failure);
}

TEST(Safetensors, a_failed_write_leaves_the_old_file_and_nothing_else) {
    const Scratch scratch;
    write_bytes(scratch.path("old"), "old");
    const HostTensor tensor = counted("x", DType::f32, {4});
    EXPECT_THROW(write_safetensors(scratch.path("no/such/folder"), {&tensor}), Failure);
    EXPECT_THROW(write_safetensors(scratch.path(""), {&tensor}), Failure);
    EXPECT_EQ(testing::read_bytes(scratch.path("old")), "old");
    EXPECT_EQ(scratch.files().size(), 1U);
    write_safetensors(scratch.path("old"), {&tensor});
    EXPECT_EQ(scratch.files().size(), 1U);
    EXPECT_NO_THROW(SafetensorsFile(scratch.path("old")));
}

}  // namespace
}  // namespace fascore::cli
