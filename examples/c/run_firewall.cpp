// SPDX-License-Identifier: MIT OR Apache-2.0
//
// run_firewall.c in C++17: handles free themselves, errors are exceptions.
//
//   run_firewall_cpp FIREWALL.o     runs the firewall on an empty frame and on one of zeroes
#include <array>
#include <cstdint>
#include <iostream>
#include <memory>
#include <stdexcept>

#include <skep.h>

namespace {

void check(int status)
{
	if (status < 0)
		throw std::runtime_error(skep_error_message());
}

template <auto Free> struct Freed {
	template <typename T> void operator()(T *handle) const { Free(handle); }
};
template <typename T, auto Free> using Handle = std::unique_ptr<T, Freed<Free>>;

using Runtime = Handle<skep_runtime, skep_runtime_free>;
using Object = Handle<skep_object, skep_object_free>;
using Module = Handle<skep_module, skep_module_free>;
using Packet = Handle<skep_packet, skep_packet_free>;

template <typename Owner, typename Make> Owner make(Make make)
{
	typename Owner::pointer handle = nullptr;

	check(make(&handle));
	return Owner(handle);
}

void run(const char *path)
{
	auto runtime = make<Runtime>([](auto to) { return skep_runtime_new(nullptr, to); });
	auto object = make<Object>([&](auto to) { return skep_object_open(path, to); });
	auto module = make<Module>(
		[&](auto to) { return skep_module_load(runtime.get(), object.get(), nullptr, to); });
	auto packet = make<Packet>([](auto to) { return skep_packet_new(nullptr, 0, to); });
	std::array<std::uint8_t, 60> frame{};
	const skep_program *firewall;
	std::uint32_t verdict;

	check(skep_module_program(module.get(), "firewall", &firewall));
	for (std::size_t size : { std::size_t{ 0 }, frame.size() }) {
		check(skep_packet_set(packet.get(), frame.data(), size));
		check(skep_program_run(firewall, packet.get(), &verdict));
		std::cout << size << " bytes: verdict " << verdict << '\n';
	}
}

} // namespace

int main(int argc, char **argv)
try {
	if (argc != 2)
		throw std::runtime_error("usage: run_firewall_cpp FIREWALL.o");
	run(argv[1]);
	return 0;
} catch (const std::exception &error) {
	std::cerr << error.what() << '\n';
	return 1;
}
