// SPDX-License-Identifier: Apache-2.0
//
// safetensors files: read with suspicion, written atomically.
//
//   byte 0        8                     8 + n                                    end of file
//        | n, u64 LE | JSON header, n bytes | data                                |
//
//   header   {"query": {"dtype": "BF16", "shape": [1, 8, 128, 64], "data_offsets": [0, 131072]}, …}
//            and perhaps "__metadata__": {text: text}; offsets count from the start of data, [begin, end)
//
// What a reader must not believe: n may exceed the file or be absurd; the JSON may be broken, have one name twice or
// be nested without end; an offset may lie outside the data or inside another tensor; shape × size may overflow or not
// be what the offsets span. Each is refused with file, tensor, given and allowed, before any tensor memory is asked
// for. As the format demands, data has no gaps: the tensors cover it exactly.
//
// F64 F32 BF16 F16 F8_E4M3 F8_E5M2 BOOL U8 can be loaded. The format's other dtypes may stand in a file beside them
// (they are checked like all others) and are refused only when asked for; a dtype the format does not know is refused
// at once.
//
// Plain reads, not a mapping: a file that is cut short while we read gives an error and not a signal, and every tensor
// lands aligned.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fascore/tensor.h"
#include "host_tensor.h"

namespace fascore::cli {

class SafetensorsFile {
  public:
    struct Entry {
        std::string dtype_name;      ///< as the file says
        std::optional<DType> dtype;  ///< absent: of the format, but not loadable
        std::vector<std::int64_t> shape;
        std::uint64_t begin = 0;  ///< in data
        std::uint64_t end = 0;
    };

    /// Opens and checks a file; throws Failure.
    explicit SafetensorsFile(const std::string& path);
    ~SafetensorsFile();
    SafetensorsFile(const SafetensorsFile&) = delete;
    SafetensorsFile& operator=(const SafetensorsFile&) = delete;

    [[nodiscard]] const std::string& path() const noexcept { return path_; }
    [[nodiscard]] const std::map<std::string, Entry>& entries() const noexcept { return entries_; }
    [[nodiscard]] bool contains(const std::string& name) const { return entries_.contains(name); }

    /// The tensor's description, no data read; throws Failure when it is absent or not loadable.
    [[nodiscard]] HostTensor describe(const std::string& name) const;

    /// Reads the data of a tensor that describe() returned.
    void load(HostTensor& tensor) const;

  private:
    void read_header();
    [[nodiscard]] std::string at(const std::string& tensor) const;
    void read_at(void* destination, std::uint64_t bytes, std::uint64_t offset, const std::string& what) const;

    std::string path_;
    int descriptor_ = -1;
    std::uint64_t data_start_ = 0;
    std::uint64_t data_bytes_ = 0;
    std::map<std::string, Entry> entries_;
};

/// Writes the tensors (all with memory, names distinct) so that `path` holds either what it held before or the whole
/// new file. Throws Failure.
void write_safetensors(const std::string& path, const std::vector<const HostTensor*>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace fascore::cli
