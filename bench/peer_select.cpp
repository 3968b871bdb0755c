// SPDX-License-Identifier: BSD-2-Clause
//
// peer_select FILE, for bench/codec: top-k as one would write it in C++ with the standard library.
// FILE is raw fp32. Each line "DENSITY OPERATION" on standard input is one run, and its
// microseconds are printed.
//
//   nth_element   a copy of the magnitudes, std::nth_element for the threshold, one pass that takes
//                 (index, value) of what is above it, and of what is equal as many as are missing
//   heap          a bounded heap of the k largest, one pass (what BytePS does)
//   check         not timed: the sum of the magnitudes that nth_element selects, so that others
//                 can be held against it

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <queue>
#include <sstream>
#include <string>
#include <vector>

namespace
{

struct Entry {
    std::uint32_t index;
    float value;
};

class Peer
{
  public:
    explicit Peer(std::vector<float> data) : x(std::move(data)), magnitude(x.size())
    {
        list.reserve(x.size());
    }

    bool run(const std::string &name, double density, double *answer)
    {
        const auto k = std::clamp<std::size_t>(
            static_cast<std::size_t>(std::ceil(density * static_cast<double>(x.size()))), 1,
            x.size());
        const auto begin = std::chrono::steady_clock::now();
        if (name == "nth_element" || name == "check")
            nth_element(k);
        else if (name == "heap")
            heap(k);
        else
            return false;
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begin;
        *answer = name == "check" ? checksum() : took.count();
        return true;
    }

  private:
    static std::uint32_t bits(float value)
    {
        std::uint32_t all;
        std::memcpy(&all, &value, sizeof all);
        return all & 0x7fffffffu;
    }

    void nth_element(std::size_t k)
    {
        for (std::size_t i = 0; i < x.size(); i++)
            magnitude[i] = bits(x[i]);
        const auto place = magnitude.begin() + static_cast<std::ptrdiff_t>(k - 1);
        std::nth_element(magnitude.begin(), place, magnitude.end(), std::greater<>());
        const std::uint32_t threshold = *place;
        std::size_t equal =
            k - static_cast<std::size_t>(std::count_if(
                    magnitude.begin(), place, [&](std::uint32_t m) { return m > threshold; }));
        list.clear();
        for (std::size_t i = 0; i < x.size(); i++) {
            const std::uint32_t m = bits(x[i]);
            if (m > threshold || (m == threshold && equal > 0 && equal-- > 0))
                list.push_back({static_cast<std::uint32_t>(i), x[i]});
        }
    }

    void heap(std::size_t k)
    {
        const auto above = [](const Entry &a, const Entry &b) {
            return bits(a.value) > bits(b.value);
        };
        list.clear();
        for (std::size_t i = 0; i < x.size(); i++) {
            const Entry entry = {static_cast<std::uint32_t>(i), x[i]};
            if (list.size() < k) {
                list.push_back(entry);
                std::push_heap(list.begin(), list.end(), above);
            } else if (above(entry, list.front())) {
                std::pop_heap(list.begin(), list.end(), above);
                list.back() = entry;
                std::push_heap(list.begin(), list.end(), above);
            }
        }
    }

    double checksum() const
    {
        double sum = 0;
        for (const Entry &entry : list)
            sum += std::fabs(static_cast<double>(entry.value));
        return sum;
    }

    std::vector<float> x;
    std::vector<std::uint32_t> magnitude;
    std::vector<Entry> list;
};

bool read_vector(const char *path, std::vector<float> *x)
{
    std::FILE *file = std::fopen(path, "rb");
    if (file == nullptr)
        return false;
    std::fseek(file, 0, SEEK_END);
    const long bytes = std::ftell(file);
    std::rewind(file);
    x->resize(bytes > 0 ? static_cast<std::size_t>(bytes) / sizeof(float) : 0);
    const bool whole = std::fread(x->data(), sizeof(float), x->size(), file) == x->size();
    std::fclose(file);
    return whole && !x->empty();
}

} // namespace

int main(int argc, char **argv)
{
    std::vector<float> x;
    if (argc != 2 || !read_vector(argv[1], &x)) {
        std::cerr << "peer_select: a file of fp32 is wanted\n";
        return 2;
    }
    Peer peer(std::move(x));
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string name;
        double density, answer;
        if (!(words >> density >> name) || !peer.run(name, density, &answer)) {
            std::cerr << "peer_select: unknown line '" << line << "'\n";
            return 1;
        }
        std::printf("%.9g\n", answer);
        std::fflush(stdout);
    }
    return 0;
}
