// SPDX-License-Identifier: Apache-2.0
//
// The text the model learns from: which files, which characters, which pieces.
//
//   files       the given ones, and of a given directory every source and document in it, sorted by name
//   characters  Unicode code points, numbered in the order of their bytes (broken UTF-8 becomes U+FFFD)
//   training    the first nine tenths of the text; validation the rest, which no step ever sees
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common.h"
#include "layers.h"

namespace char_lm {

namespace fs = std::filesystem;

/// Sources and documents under the given paths. Hidden folders and build trees are passed over.
inline std::vector<fs::path> find_text_files(const std::vector<std::string>& paths) {
    static const std::set<std::string> endings = {".md", ".h",  ".hpp",   ".cpp", ".cc",
                                                  ".c",  ".py", ".cmake", ".txt", ".sh"};
    std::vector<fs::path> files;
    for (const std::string& path : paths) {
        if (!fs::exists(path)) throw std::runtime_error(fmt::format("paths: {}, no such file or directory", path));
        if (!fs::is_directory(path)) {
            files.emplace_back(path);
            continue;
        }
        for (auto entry = fs::recursive_directory_iterator(path); entry != fs::recursive_directory_iterator();
             ++entry) {
            const std::string file = entry->path().filename().string();
            if (entry->is_directory()) {
                const bool is_build_tree = fs::exists(entry->path() / "CMakeCache.txt");
                if (file.starts_with('.') || is_build_tree) entry.disable_recursion_pending();
            } else if (entry->is_regular_file() && endings.contains(entry->path().extension().string())) {
                files.push_back(entry->path());
            }
        }
    }
    std::sort(files.begin(), files.end());
    files.erase(std::unique(files.begin(), files.end()), files.end());
    return files;
}

/// The UTF-8 characters of a text, one string each.
inline std::vector<std::string> split_characters(std::string_view text) {
    std::vector<std::string> characters;
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<unsigned char>(text[i]);
        std::size_t length = lead < 0x80                   ? 1
                             : lead >= 0xC2 && lead < 0xE0 ? 2
                             : lead >= 0xE0 && lead < 0xF0 ? 3
                             : lead >= 0xF0 && lead < 0xF5 ? 4
                                                           : 0;
        bool whole = length > 0 && i + length <= text.size();
        for (std::size_t k = 1; whole && k < length; ++k) {
            whole = (static_cast<unsigned char>(text[i + k]) & 0xC0U) == 0x80U;
        }
        if (!whole) length = 1;
        characters.emplace_back(whole ? text.substr(i, length) : std::string_view("\xEF\xBF\xBD"));
        i += length;
    }
    return characters;
}

class Text {
  public:
    explicit Text(const std::vector<fs::path>& files) {
        std::vector<std::string> characters;
        for (const fs::path& file : files) {
            std::ifstream stream(file, std::ios::binary);
            if (!stream) throw std::runtime_error(fmt::format("paths: {}, cannot be read", file.string()));
            const std::string content{std::istreambuf_iterator<char>(stream), {}};
            bytes_ += static_cast<Index>(content.size());
            std::ranges::move(split_characters(content), std::back_inserter(characters));
        }
        for (const std::string& character : characters) numbers_.emplace(character, 0);
        for (auto& [character, number] : numbers_) {
            number = static_cast<Token>(vocabulary_.size());
            vocabulary_.push_back(character);
        }
        tokens_.reserve(characters.size());
        for (const std::string& character : characters) tokens_.push_back(numbers_.at(character));
    }

    [[nodiscard]] Index bytes() const { return bytes_; }
    [[nodiscard]] Index size() const { return static_cast<Index>(tokens_.size()); }
    [[nodiscard]] Index vocabulary_size() const { return static_cast<Index>(vocabulary_.size()); }
    [[nodiscard]] Index training_size() const { return size() - size() / 10; }

    [[nodiscard]] const std::string& character(Token token) const {
        return vocabulary_.at(static_cast<std::size_t>(token));
    }
    /// The characters of `text` that the vocabulary has.
    [[nodiscard]] std::vector<Token> encode(std::string_view text) const {
        std::vector<Token> tokens;
        for (const std::string& character : split_characters(text)) {
            if (const auto found = numbers_.find(character); found != numbers_.end()) tokens.push_back(found->second);
        }
        return tokens;
    }

    /// B sequences of S characters and, one place further on, the characters that follow each.
    struct Batch {
        std::vector<Token> tokens, targets;
    };
    /// From anywhere in the training part.
    [[nodiscard]] Batch training_batch(Index B, Index S, Random& random) const {
        Batch batch;
        for (Index b = 0; b < B; ++b) append(batch, random.below(training_size() - S), S);
        return batch;
    }
    /// Evenly spread over the validation part, always the same ones.
    [[nodiscard]] Batch validation_batch(Index B, Index S) const {
        Batch batch;
        const Index room = size() - training_size() - S - 1;
        for (Index b = 0; b < B; ++b) append(batch, training_size() + room * b / std::max<Index>(1, B - 1), S);
        return batch;
    }

  private:
    void append(Batch& batch, Index start, Index S) const {
        const auto first = tokens_.begin() + start;
        batch.tokens.insert(batch.tokens.end(), first, first + S);
        batch.targets.insert(batch.targets.end(), first + 1, first + S + 1);
    }

    Index bytes_ = 0;
    std::map<std::string, Token> numbers_;
    std::vector<std::string> vocabulary_;
    std::vector<Token> tokens_;
};

}  // namespace char_lm
