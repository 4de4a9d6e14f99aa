// SPDX-License-Identifier: Apache-2.0
//
// safetensors files: format and reasons in safetensors.h. Reading is: 1 the file is a file; 2 the header length fits;
// 3 the JSON is well formed, no name twice; 4 every entry makes sense on its own; 5 together they tile the data.
#include "safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "command.h"

namespace fascore::cli {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and copied as it is");

using Json = nlohmann::json;

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t header_limit = 100'000'000;  // the format's own bound
constexpr int nesting_limit = 3;                     // file object, tensor object, list: depth 0, 1, 2

struct FormatDtype {
    std::string_view name;
    std::uint64_t bytes;
    std::optional<DType> dtype;
};

constexpr std::array format_dtypes = {
    FormatDtype{"F64", 8, DType::f64},        FormatDtype{"F32", 4, DType::f32},
    FormatDtype{"BF16", 2, DType::bf16},      FormatDtype{"F16", 2, DType::f16},
    FormatDtype{"BOOL", 1, DType::boolean},   FormatDtype{"U8", 1, DType::u8},
    FormatDtype{"I64", 8, std::nullopt},      FormatDtype{"U64", 8, std::nullopt},
    FormatDtype{"I32", 4, std::nullopt},      FormatDtype{"U32", 4, std::nullopt},
    FormatDtype{"I16", 2, std::nullopt},      FormatDtype{"U16", 2, std::nullopt},
    FormatDtype{"I8", 1, std::nullopt},       FormatDtype{"F8_E4M3", 1, DType::f8e4m3},
    FormatDtype{"F8_E5M2", 1, DType::f8e5m2},
};

constexpr std::string_view loadable_dtypes = "F64, F32, BF16, F16, F8_E4M3, F8_E5M2, BOOL or U8";

std::string system_message() { return std::error_code(errno, std::generic_category()).message(); }

/// A value of the file as a short text for a message.
std::string shown(const Json& value) {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
}

/// Parses the header; refuses repeated names, which a plain parse would silently merge.
Json parse_header(const std::string& text, const std::string& path) {
    std::vector<std::set<std::string>> names(1);
    const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (depth > nesting_limit) {
            throw Failure(
                fmt::format("{}: header is nested deeper than {} levels, must be {{name: {{dtype, shape, "
                            "data_offsets}}}}",
                            path, nesting_limit));
        }
        const auto level = static_cast<std::size_t>(depth);
        if (event == Json::parse_event_t::object_start) {
            names.resize(level + 2);
            names[level + 1].clear();
        } else if (event == Json::parse_event_t::key) {
            const std::string name = parsed.get<std::string>();
            if (names.size() <= level) names.resize(level + 1);
            if (!names[level].insert(name).second) {
                throw Failure(
                    fmt::format("{}: {}: named twice in the header, must be named once", path, shown(parsed)));
            }
        }
        return true;
    };
    try {
        return Json::parse(text, watch);
    } catch (const Json::exception& error) {
        // "[json.exception.parse_error.101] parse error at line 1, column 5: …": the part from "parse error" on.
        const std::string_view what = error.what();
        const auto start = what.find("] ");
        throw Failure(fmt::format("{}: header is not JSON: {}", path,
                                  start == std::string_view::npos ? what : what.substr(start + 2)));
    }
}

/// A non-negative integer of the header, or nothing.
std::optional<std::uint64_t> as_count(const Json& value) {
    if (!value.is_number_unsigned()) return std::nullopt;
    return value.get<std::uint64_t>();
}

/// Everything about one entry that can be judged without the others.
SafetensorsFile::Entry parse_entry(const Json& stated, const std::string& where, std::uint64_t data_bytes) {
    if (!stated.is_object()) {
        throw Failure(
            fmt::format("{}: {}, must be an object with dtype, shape and data_offsets", where, shown(stated)));
    }
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
        if (!stated.contains(key)) throw Failure(fmt::format("{}: {} is absent, must be given", where, key));
    }

    SafetensorsFile::Entry entry;
    const Json& dtype = stated["dtype"];
    const auto* known = std::find_if(format_dtypes.begin(), format_dtypes.end(), [&](const FormatDtype& candidate) {
        return dtype.is_string() && dtype.get_ref<const std::string&>() == candidate.name;
    });
    if (known == format_dtypes.end()) {
        throw Failure(fmt::format("{}: dtype is {}, must be {}", where, shown(dtype), loadable_dtypes));
    }
    entry.dtype_name = known->name;
    entry.dtype = known->dtype;

    const Json& shape = stated["shape"];
    if (!shape.is_array()) throw Failure(fmt::format("{}: shape is {}, must be a list", where, shown(shape)));
    std::uint64_t bytes = known->bytes;
    for (const Json& extent : shape) {
        const auto count = as_count(extent);
        if (!count || *count > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
            throw Failure(
                fmt::format("{}: shape is {}, extents must be integers from 0 to 2^63 - 1", where, shown(shape)));
        }
        entry.shape.push_back(static_cast<std::int64_t>(*count));
        if (__builtin_mul_overflow(bytes, *count, &bytes)) {
            throw Failure(fmt::format("{}: shape is {}, its size in bytes must be below 2^64", where, shown(shape)));
        }
    }

    const Json& offsets = stated["data_offsets"];
    const bool is_pair = offsets.is_array() && offsets.size() == 2;
    const auto begin = is_pair ? as_count(offsets[0]) : std::nullopt;
    const auto end = is_pair ? as_count(offsets[1]) : std::nullopt;
    if (!begin || !end) {
        throw Failure(fmt::format("{}: data_offsets is {}, must be two integers [begin, end]", where, shown(offsets)));
    }
    if (*begin > *end || *end > data_bytes) {
        throw Failure(fmt::format("{}: data_offsets is {}, must be begin <= end <= {}, the bytes of data in the file",
                                  where, shown(offsets), data_bytes));
    }
    if (*end - *begin != bytes) {
        throw Failure(fmt::format("{}: data_offsets {} span {} bytes, must span {} for {} of shape {}", where,
                                  shown(offsets), *end - *begin, bytes, entry.dtype_name, shown(shape)));
    }
    entry.begin = *begin;
    entry.end = *end;
    return entry;
}

/// Together the entries must cover the data, each byte once.
void check_coverage(const std::map<std::string, SafetensorsFile::Entry>& entries, std::uint64_t data_bytes,
                    const std::string& path) {
    struct Span {
        std::uint64_t begin, end;
        const std::string* name;
    };
    std::vector<Span> spans;
    for (const auto& [name, entry] : entries) spans.push_back({entry.begin, entry.end, &name});
    std::sort(spans.begin(), spans.end(),
              [](const Span& a, const Span& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
    std::uint64_t covered = 0;
    for (const Span& span : spans) {
        if (span.begin < covered) {
            throw Failure(fmt::format("{}: {}: data_offsets begin at {}, inside another tensor; must begin at {}", path,
                                      shown(*span.name), span.begin, covered));
        }
        if (span.begin > covered) {
            throw Failure(fmt::format("{}: {}: data_offsets begin at {}, which leaves a gap; must begin at {}", path,
                                      shown(*span.name), span.begin, covered));
        }
        covered = span.end;
    }
    if (covered != data_bytes) {
        throw Failure(fmt::format("{}: file has {} bytes of data, its tensors span {}, must be equal", path, data_bytes,
                                  covered));
    }
}

/// A file under construction beside its target; removed unless it was put in place.
class TemporaryFile {
  public:
    explicit TemporaryFile(std::string target) : target_(std::move(target)) {
        for (int attempt = 0; attempt < 100; ++attempt) {
            path_ = fmt::format("{}.tmp-{}-{}", target_, getpid(), attempt);
            descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
            if (descriptor_ >= 0 || errno != EEXIST) break;
        }
        if (descriptor_ < 0) throw Failure(fmt::format("{}: cannot be written: {}", target_, system_message()));
    }
    ~TemporaryFile() {
        if (descriptor_ >= 0) close(descriptor_);
        if (!placed_) unlink(path_.c_str());
    }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

    void place() {
        const bool synced = fsync(descriptor_) == 0;
        const bool closed = close(std::exchange(descriptor_, -1)) == 0;
        if (!synced || !closed || std::rename(path_.c_str(), target_.c_str()) != 0) {
            throw Failure(fmt::format("{}: cannot be written: {}", target_, system_message()));
        }
        placed_ = true;
    }

  private:
    std::string target_;
    std::string path_;
    int descriptor_ = -1;
    bool placed_ = false;
};

void write_all(int descriptor, const void* data, std::size_t bytes, const std::string& path) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
        const ssize_t written = write(descriptor, from, std::min<std::size_t>(bytes, std::size_t{1} << 30));
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) throw Failure(fmt::format("{}: cannot be written: {}", path, system_message()));
        from += written;
        bytes -= static_cast<std::size_t>(written);
    }
}

void write_contents(int descriptor, const std::string& header, const std::vector<const HostTensor*>& tensors,
                    const std::string& path) {
    const auto length = static_cast<std::uint64_t>(header.size());
    write_all(descriptor, &length, sizeof(length), path);
    write_all(descriptor, header.data(), header.size(), path);
    for (const HostTensor* tensor : tensors) write_all(descriptor, tensor->data(), tensor->bytes(), path);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
    // Not blocking: a pipe under that name must be refused, not waited for.
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) throw Failure(fmt::format("{}: cannot be read: {}", path, system_message()));
    try {
        read_header();
    } catch (...) {
        close(descriptor_);
        throw;
    }
}

SafetensorsFile::~SafetensorsFile() { close(descriptor_); }

std::string SafetensorsFile::at(const std::string& tensor) const {
    return fmt::format("{}: {}", path_, shown(Json(tensor)));
}

void SafetensorsFile::read_header() {
    // 1 The file is a file.
    struct stat about {};
    if (fstat(descriptor_, &about) != 0) throw Failure(fmt::format("{}: cannot be read: {}", path_, system_message()));
    if (!S_ISREG(about.st_mode)) throw Failure(fmt::format("{}: not a regular file", path_));
    const auto file_bytes = static_cast<std::uint64_t>(about.st_size);

    // 2 The header length fits.
    if (file_bytes < length_bytes) {
        throw Failure(fmt::format("{}: file has {} bytes, a safetensors file has at least {}", path_, file_bytes,
                                  length_bytes + 2));
    }
    std::uint64_t header_bytes = 0;
    read_at(&header_bytes, length_bytes, 0, "header length");
    if (header_bytes > header_limit || header_bytes > file_bytes - length_bytes) {
        throw Failure(fmt::format("{}: header length is {}, must be at most {}", path_, header_bytes,
                                  std::min(header_limit, file_bytes - length_bytes)));
    }
    data_start_ = length_bytes + header_bytes;
    data_bytes_ = file_bytes - data_start_;

    // 3 The JSON is well formed, no name twice.
    std::string text(header_bytes, '\0');
    read_at(text.data(), header_bytes, length_bytes, "header");
    const Json header = parse_header(text, path_);
    if (!header.is_object()) throw Failure(fmt::format("{}: header is {}, must be an object", path_, shown(header)));

    // 4 Every entry makes sense on its own.
    for (const auto& [name, stated] : header.items()) {
        if (name == "__metadata__") {
            const bool texts = stated.is_object() && std::all_of(stated.begin(), stated.end(),
                                                                 [](const Json& value) { return value.is_string(); });
            if (!texts)
                throw Failure(fmt::format("{}: __metadata__ is {}, must map text to text", path_, shown(stated)));
            continue;
        }
        entries_.emplace(name, parse_entry(stated, at(name), data_bytes_));
    }

    // 5 Together they tile the data.
    check_coverage(entries_, data_bytes_, path_);
}

void SafetensorsFile::read_at(void* destination, std::uint64_t bytes, std::uint64_t offset,
                              const std::string& what) const {
    auto* to = static_cast<char*>(destination);
    while (bytes > 0) {
        const auto step = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, std::uint64_t{1} << 30));
        const ssize_t got = pread(descriptor_, to, step, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw Failure(fmt::format("{}: {}: cannot be read: {}", path_, what, system_message()));
        if (got == 0) throw Failure(fmt::format("{}: {}: the file ends early", path_, what));
        to += got;
        offset += static_cast<std::uint64_t>(got);
        bytes -= static_cast<std::uint64_t>(got);
    }
}

HostTensor SafetensorsFile::describe(const std::string& name) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
        std::string names;
        for (const auto& [other, entry] : entries_) names += (names.empty() ? "" : ", ") + other;
        if (names.size() > 200) names = names.substr(0, 197) + "...";
        throw Failure(fmt::format("{}: {}: absent, must be given; the file has {}", path_, name,
                                  names.empty() ? "no tensors" : names));
    }
    if (!found->second.dtype) {
        throw Failure(fmt::format("{}: dtype is {}, must be {}", at(name), found->second.dtype_name, loadable_dtypes));
    }
    if (found->second.shape.empty()) {
        throw Failure(fmt::format("{}: shape is [], must have at least one axis", at(name)));
    }
    return {name, *found->second.dtype, found->second.shape};
}

void SafetensorsFile::load(HostTensor& tensor) const {
    const Entry& entry = entries_.at(tensor.name());
    tensor.allocate();
    read_at(tensor.data(), entry.end - entry.begin, data_start_ + entry.begin, tensor.name());
}

void write_safetensors(const std::string& path, const std::vector<const HostTensor*>& tensors,
                       const std::map<std::string, std::string>& metadata) {
    // Wide elements first, so that every tensor lies on a multiple of its element size without gaps.
    std::vector<const HostTensor*> ordered = tensors;
    std::stable_sort(ordered.begin(), ordered.end(), [](const HostTensor* a, const HostTensor* b) {
        return size_of(a->dtype()) > size_of(b->dtype());
    });
    Json header = Json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    std::uint64_t offset = 0;
    for (const HostTensor* tensor : ordered) {
        const auto* known = std::find_if(format_dtypes.begin(), format_dtypes.end(), [&](const FormatDtype& candidate) {
            return candidate.dtype == tensor->dtype();
        });
        const std::uint64_t end = offset + tensor->bytes();
        header[tensor->name()] = {
            {"dtype", known->name}, {"shape", tensor->shape()}, {"data_offsets", Json::array({offset, end})}};
        offset = end;
    }
    std::string text = header.dump();
    // Spaces after the JSON are allowed; they put the data on a multiple of 64.
    text.append((64 - (length_bytes + text.size()) % 64) % 64, ' ');

    // A device or pipe under that name is written, never replaced; a link is followed.
    std::error_code ignored;
    const auto kind = std::filesystem::status(path, ignored).type();
    if (kind == std::filesystem::file_type::directory) throw Failure(fmt::format("{}: is a directory", path));
    if (kind != std::filesystem::file_type::not_found && kind != std::filesystem::file_type::regular) {
        const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
        if (descriptor < 0) throw Failure(fmt::format("{}: cannot be written: {}", path, system_message()));
        try {
            write_contents(descriptor, text, ordered, path);
        } catch (...) {
            close(descriptor);
            throw;
        }
        close(descriptor);
        return;
    }
    const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, ignored);
    TemporaryFile file(resolved.empty() ? path : resolved.string());
    write_contents(file.descriptor(), text, ordered, path);
    file.place();
}

}  // namespace fascore::cli
