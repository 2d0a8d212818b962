/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A host in C that uses every function of the library and prints the results.
 *
 *   host FIREWALL RAW MISFIT CARELESS TYPED
 *
 * Five objects: a packet filter, a program for a buffer, one whose maps do not fit each other, an unsafe program, and
 * one with records and variables, whose header `skep gen skeleton` made.
 */
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <skep.h>

#include "typed.skel.h"

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "line %d: not so: %s (%s)\n", __LINE__, #condition, skep_error_message());    \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)

enum { FRAME = 54, THREADS = 4, RUNS = 1000, REASONS = 12 };

/* An Ethernet frame with an IPv4 TCP segment from this address to 10.0.0.2, port 80. */
static void tcp_frame(uint8_t frame[FRAME], uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	static const uint8_t ip[] = { 0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2 };
	static const uint8_t tcp[] = { 0x9c, 0x40, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02 };

	memset(frame, 0, FRAME);
	memcpy(frame + 12, ip, sizeof(ip));
	frame[26] = a, frame[27] = b, frame[28] = c, frame[29] = d;
	memcpy(frame + 34, tcp, sizeof(tcp));
}

static void run(const skep_program *program, skep_packet *packet, const char *what)
{
	uint32_t verdict = 99;

	CHECK(skep_program_run(program, packet, &verdict) == SKEP_OK);
	printf("%s: verdict %" PRIu32 "\n", what, verdict);
}

/* The verdicts map holds, for each reason and each virtual CPU, packets and bytes. */
static void print_verdicts(const skep_map *verdicts)
{
	size_t size = skep_map_value_size(verdicts);
	uint64_t *tallies = malloc(size);

	CHECK(tallies);
	for (uint32_t reason = 0; reason < REASONS; reason++) {
		uint64_t packets = 0, bytes = 0;

		CHECK(skep_map_lookup(verdicts, &reason, sizeof(reason), tallies, size) == SKEP_OK);
		for (size_t word = 0; word < size / 8; word += 2)
			packets += tallies[word], bytes += tallies[word + 1];
		if (packets)
			printf("reason %" PRIu32 ": %" PRIu64 " packets, %" PRIu64 " bytes\n", reason, packets, bytes);
	}
	free(tallies);
}

static void *run_often(void *program)
{
	uint8_t frame[FRAME];
	skep_packet *packet;
	uint32_t verdict;

	tcp_frame(frame, 10, 0, 0, 1);
	CHECK(skep_packet_new(frame, sizeof(frame), &packet) == SKEP_OK);
	for (int i = 0; i < RUNS; i++) {
		CHECK(skep_program_run(program, packet, &verdict) == SKEP_OK);
		CHECK(verdict == 2);
	}
	skep_packet_free(packet);
	return NULL;
}

static void filter(const char *path)
{
	struct {
		uint32_t bits;
		uint8_t address[4];
	} host = { 32, { 10, 0, 0, 1 } }, next;
	uint8_t frame[FRAME], source[16], again[16];
	skep_runtime_options options = { .size = sizeof(options), .cpus = 8 };
	const skep_map *verdicts, *blocked, *offenders;
	const skep_program *program;
	pthread_t threads[THREADS];
	uint32_t one = 1, index = REASONS;
	skep_runtime *runtime;
	skep_object *object;
	skep_module *module;
	skep_packet *packet;
	uint64_t count;
	size_t len;

	CHECK(skep_runtime_new(&options, &runtime) == SKEP_OK);
	CHECK(skep_object_open(path, &object) == SKEP_OK);
	CHECK(skep_module_load(runtime, object, NULL, &module) == SKEP_OK);
	skep_object_free(object);
	CHECK(skep_module_program(module, "firewall", &program) == SKEP_OK);
	CHECK(skep_module_map(module, "verdicts", &verdicts) == SKEP_OK);
	CHECK(skep_module_map(module, "blocked4", &blocked) == SKEP_OK);
	CHECK(skep_module_map(module, "offenders", &offenders) == SKEP_OK);
	CHECK(skep_map_key_size(verdicts) == 4 && skep_map_value_size(verdicts) == 8 * 16);
	CHECK(skep_map_key_size(blocked) == 8 && skep_map_value_size(blocked) == 4);

	tcp_frame(frame, 10, 0, 0, 1);
	CHECK(skep_packet_new(frame, sizeof(frame), &packet) == SKEP_OK);
	run(program, packet, "ordinary");
	CHECK(skep_map_update(blocked, &host, sizeof(host), &one, sizeof(one), SKEP_ANY) == SKEP_OK);
	run(program, packet, "blocked by the host");
	CHECK(skep_map_update(blocked, &host, sizeof(host), &one, sizeof(one), SKEP_NOEXIST) == SKEP_E_EXISTS);
	CHECK(skep_map_next_key(blocked, NULL, (uint8_t *)&next, sizeof(next)) == SKEP_OK);
	CHECK(memcmp(&next, &host, sizeof(host)) == 0);
	CHECK(skep_map_next_key(blocked, &next, &next, sizeof(next)) == SKEP_E_NOT_FOUND);
	printf("end: %s\n", skep_error_message());
	CHECK(skep_map_delete(blocked, &host, sizeof(host)) == SKEP_OK);
	CHECK(skep_map_delete(blocked, &host, sizeof(host)) == SKEP_E_NOT_FOUND);
	CHECK(skep_map_update(blocked, &host, sizeof(host), &one, sizeof(one), SKEP_EXIST) == SKEP_E_NOT_FOUND);
	run(program, packet, "free again");
	tcp_frame(frame, 10, 66, 1, 1);
	CHECK(skep_packet_set(packet, frame, sizeof(frame)) == SKEP_OK);
	CHECK(memcmp(skep_packet_bytes(packet, &len), frame, sizeof(frame)) == 0 && len == sizeof(frame));
	run(program, packet, "blocked by the program");
	/* Replace the packet by 30 of its own bytes, from the second one on. */
	CHECK(skep_packet_set(packet, skep_packet_bytes(packet, NULL) + 2, 30) == SKEP_OK);
	CHECK(memcmp(skep_packet_bytes(packet, &len), frame + 2, 30) == 0 && len == 30);
	CHECK(skep_packet_set(packet, frame, 20) == SKEP_OK);
	run(program, packet, "cut");
	CHECK(skep_packet_set(packet, NULL, 0) == SKEP_OK);
	run(program, packet, "empty");
	skep_packet_free(packet);

	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, run_often, (void *)program) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	print_verdicts(verdicts);

	/* Two sources were dropped for their addresses; they are keys of the hash table, in any order. */
	CHECK(skep_map_next_key(offenders, NULL, source, sizeof(source)) == SKEP_OK);
	CHECK(skep_map_lookup(offenders, source, sizeof(source), &count, sizeof(count)) == SKEP_OK && count == 1);
	CHECK(skep_map_next_key(offenders, source, again, sizeof(again)) == SKEP_OK);
	CHECK(memcmp(source, again, sizeof(source)) != 0 && source[12] == 10 && again[12] == 10);
	CHECK(skep_map_next_key(offenders, again, again, sizeof(again)) == SKEP_E_NOT_FOUND);
	memset(source, 0, sizeof(source));
	CHECK(skep_map_lookup(offenders, source, sizeof(source), &count, sizeof(count)) == SKEP_E_NOT_FOUND);
	printf("no key: %s\n", skep_error_message());

	CHECK(skep_map_lookup(offenders, source, 4, &count, sizeof(count)) == SKEP_E_ARGUMENT);
	printf("key size: %s\n", skep_error_message());
	CHECK(skep_map_next_key(offenders, NULL, source, 4) == SKEP_E_ARGUMENT);
	CHECK(skep_map_lookup(offenders, source, sizeof(source), &count, 4) == SKEP_E_ARGUMENT);
	printf("value size: %s\n", skep_error_message());
	CHECK(skep_map_update(offenders, source, sizeof(source), &count, sizeof(count), 8) == SKEP_E_ARGUMENT);
	printf("flags: %s\n", skep_error_message());
	CHECK(skep_map_delete(verdicts, &one, sizeof(one)) == SKEP_E_DENIED);
	printf("array: %s\n", skep_error_message());
	CHECK(skep_map_lookup(verdicts, &index, sizeof(index), &count, 0) == SKEP_E_ARGUMENT);
	CHECK(skep_module_program(module, "nobody", &program) == SKEP_E_NOT_FOUND);
	printf("no program: %s\n", skep_error_message());
	CHECK(skep_module_map(module, "\xff", &verdicts) == SKEP_E_ARGUMENT);
	printf("no name: %s\n", skep_error_message());

	/* Programs and maps need the module, not the runtime's handle. */
	CHECK(skep_runtime_release_cpu(runtime) == 1);
	CHECK(skep_runtime_release_cpu(runtime) == 0);
	skep_runtime_free(runtime);
	CHECK(skep_packet_new(frame, sizeof(frame), &packet) == SKEP_OK);
	CHECK(skep_module_program(module, "firewall", &program) == SKEP_OK);
	run(program, packet, "without the runtime's handle");
	CHECK(skep_program_run_raw(program, frame, sizeof(frame), &count) == SKEP_E_ARGUMENT);
	printf("wrong input: %s\n", skep_error_message());
	skep_packet_free(packet);
	skep_module_free(module);
}

static void *run_raw_once(void *program)
{
	uint8_t buffer[4] = { 0 };
	uint64_t result;

	CHECK(skep_program_run_raw(program, buffer, sizeof(buffer), &result) == SKEP_OK && result == 0);
	printf("shared: one virtual CPU serves two threads\n");
	return NULL;
}

static void sum(const char *path)
{
	skep_runtime_options one_cpu = { .size = sizeof(one_cpu),
					 .cpus = 1,
					 .hardening = SKEP_LANDING_PADS | SKEP_SIGNED_RETURNS };
	skep_load_options options = { .size = sizeof(options), .program = "sum_bytes", .buffer_len = 4 };
	uint8_t buffer[5] = { 1, 2, 3, 4, 5 }, *file = malloc(1 << 20);
	const skep_program *program;
	skep_runtime *runtime;
	skep_object *object;
	skep_module *module;
	uint64_t result = 0;
	pthread_t other;
	FILE *stream = fopen(path, "rb");
	size_t len;

	CHECK(file && stream);
	len = fread(file, 1, 1 << 20, stream);
	fclose(stream);
	CHECK(skep_object_parse(file, len, &object) == SKEP_OK);
	free(file);
	CHECK(skep_runtime_new(&one_cpu, &runtime) == SKEP_OK);
	CHECK(skep_module_load(runtime, object, &options, &module) == SKEP_OK);
	CHECK(skep_module_program(module, "sum_bytes", &program) == SKEP_OK);
	CHECK(skep_program_run_raw(program, buffer, 4, &result) == SKEP_OK);
	printf("sum %" PRIu64 ": %d %d %d %d, %d\n", result, buffer[0], buffer[1], buffer[2], buffer[3], buffer[4]);
	CHECK(skep_program_run_raw(program, buffer, 5, &result) == SKEP_E_ARGUMENT && result == 10);
	printf("length: %s\n", skep_error_message());
	CHECK(pthread_create(&other, NULL, run_raw_once, (void *)program) == 0 && pthread_join(other, NULL) == 0);
	skep_module_free(module);

	options.program = "other";
	CHECK(skep_module_load(runtime, object, &options, &module) == SKEP_E_NOT_FOUND);
	options.size = 0;
	CHECK(skep_module_load(runtime, object, &options, &module) == SKEP_E_ARGUMENT);
	printf("options: %s\n", skep_error_message());
	skep_object_free(object);
	skep_runtime_free(runtime);
}

static void refuse(const char *misfit, const char *path)
{
	skep_runtime_options options = { .size = sizeof(options), .code_memory = 1 };
	skep_module *module = NULL;
	skep_object *object = NULL;
	skep_runtime *runtime;

	CHECK(skep_runtime_new(&options, &runtime) == SKEP_E_MEMORY);
	printf("little code: %s\n", skep_error_message());
	options.code_memory = 0, options.cpus = UINT64_MAX;
	CHECK(skep_runtime_new(&options, &runtime) == SKEP_E_ARGUMENT);
	options.cpus = UINT32_MAX;
	CHECK(skep_runtime_new(&options, &runtime) == SKEP_E_ARGUMENT);
	printf("many CPUs: %s\n", skep_error_message());
	options.cpus = 0;
	options.hardening = SKEP_SIGNED_RETURNS << 1;
	CHECK(skep_runtime_new(&options, &runtime) == SKEP_E_ARGUMENT);
	printf("hardening: %s\n", skep_error_message());
	options.hardening = 0;
	CHECK(skep_runtime_new(&options, &runtime) == SKEP_OK);
	CHECK(skep_object_open("no/such/file.bpf.o", &object) == SKEP_E_READ && !object);
	printf("no file: %s\n", skep_error_message());
	CHECK(skep_object_parse("int main;", 9, &object) == SKEP_E_OBJECT && !object);
	printf("no object: %s\n", skep_error_message());
	CHECK(skep_object_open(misfit, &object) == SKEP_OK);
	CHECK(skep_module_load(runtime, object, NULL, &module) == SKEP_E_OBJECT && !module);
	printf("misfit: %s\n", skep_error_message());
	skep_object_free(object);
	CHECK(skep_object_open(path, &object) == SKEP_OK);
	CHECK(skep_module_load(runtime, object, NULL, &module) == SKEP_E_REFUSED && !module);
	printf("refused: %s\n", skep_error_message());
	skep_object_free(object);
	skep_runtime_free(runtime);
}

/* Calls every function with null pointers. */
static void pass_null(const char *path)
{
	skep_runtime_options little = { .size = sizeof(little), .map_memory = 100 };
	const skep_program *program = NULL;
	const skep_map *map = NULL;
	skep_runtime *runtime;
	skep_object *object;
	skep_module *module;
	skep_packet *packet;
	uint64_t result;
	uint32_t verdict;
	uint8_t byte = 0;
	size_t len = 1;

	CHECK(skep_runtime_new(NULL, NULL) == SKEP_E_ARGUMENT);
	CHECK(skep_runtime_new(&little, &runtime) == SKEP_OK);
	CHECK(skep_object_open(path, &object) == SKEP_OK);
	CHECK(skep_module_load(runtime, object, NULL, &module) == SKEP_E_MEMORY);
	skep_object_free(object);
	skep_runtime_free(runtime);

	CHECK(skep_runtime_new(NULL, &runtime) == SKEP_OK);
	CHECK(skep_object_open(path, NULL) == SKEP_E_ARGUMENT && skep_object_open(NULL, &object) == SKEP_E_ARGUMENT);
	CHECK(skep_object_parse(NULL, 1, &object) == SKEP_E_ARGUMENT);
	CHECK(skep_object_parse(NULL, 0, &object) == SKEP_E_OBJECT);
	CHECK(skep_object_parse(&byte, SIZE_MAX, &object) == SKEP_E_ARGUMENT);
	CHECK(skep_object_parse(&byte, 1, NULL) == SKEP_E_ARGUMENT);
	CHECK(skep_object_open(path, &object) == SKEP_OK);
	CHECK(skep_module_load(NULL, object, NULL, &module) == SKEP_E_ARGUMENT);
	CHECK(skep_module_load(runtime, NULL, NULL, &module) == SKEP_E_ARGUMENT);
	CHECK(skep_module_load(runtime, object, NULL, NULL) == SKEP_E_ARGUMENT);
	CHECK(skep_module_load(runtime, object, NULL, &module) == SKEP_OK);
	CHECK(skep_module_program(NULL, "firewall", &program) == SKEP_E_ARGUMENT);
	CHECK(skep_module_program(module, NULL, &program) == SKEP_E_ARGUMENT);
	CHECK(skep_module_program(module, "firewall", NULL) == SKEP_E_ARGUMENT && !program);
	CHECK(skep_module_map(NULL, "verdicts", &map) == SKEP_E_ARGUMENT);
	CHECK(skep_module_map(module, NULL, &map) == SKEP_E_ARGUMENT);
	CHECK(skep_module_map(module, "verdicts", NULL) == SKEP_E_ARGUMENT && !map);
	CHECK(skep_module_program(module, "firewall", &program) == SKEP_OK);
	CHECK(skep_module_map(module, "blocked_services", &map) == SKEP_OK);
	CHECK(skep_packet_new(NULL, 1, &packet) == SKEP_E_ARGUMENT && skep_packet_new(&byte, 1, NULL) == SKEP_E_ARGUMENT);
	CHECK(skep_packet_new(NULL, 0, &packet) == SKEP_OK);
	CHECK(skep_packet_set(NULL, &byte, 1) == SKEP_E_ARGUMENT && skep_packet_set(packet, NULL, 1) == SKEP_E_ARGUMENT);
	CHECK(skep_packet_bytes(NULL, &len) == NULL && len == 0 && skep_packet_bytes(NULL, NULL) == NULL);
	CHECK(skep_program_run(NULL, packet, &verdict) == SKEP_E_ARGUMENT);
	CHECK(skep_program_run(program, NULL, &verdict) == SKEP_E_ARGUMENT);
	printf("nothing: %s\n", skep_error_message());
	CHECK(skep_program_run(program, packet, NULL) == SKEP_E_ARGUMENT);
	CHECK(skep_program_run_raw(NULL, &byte, 1, &result) == SKEP_E_ARGUMENT);
	CHECK(skep_program_run_raw(program, NULL, 1, &result) == SKEP_E_ARGUMENT);
	CHECK(skep_program_run_raw(program, &byte, 1, NULL) == SKEP_E_ARGUMENT);
	CHECK(skep_map_key_size(NULL) == 0 && skep_map_value_size(NULL) == 0);
	CHECK(skep_map_lookup(NULL, &byte, 1, &byte, 1) == SKEP_E_ARGUMENT);
	CHECK(skep_map_lookup(map, NULL, 4, &verdict, 4) == SKEP_E_ARGUMENT);
	CHECK(skep_map_lookup(map, &verdict, 4, NULL, 4) == SKEP_E_ARGUMENT);
	CHECK(skep_map_update(NULL, &byte, 1, &byte, 1, SKEP_ANY) == SKEP_E_ARGUMENT);
	CHECK(skep_map_update(map, NULL, 4, &verdict, 4, SKEP_ANY) == SKEP_E_ARGUMENT);
	CHECK(skep_map_update(map, &verdict, 4, NULL, 4, SKEP_ANY) == SKEP_E_ARGUMENT);
	CHECK(skep_map_delete(NULL, &byte, 1) == SKEP_E_ARGUMENT && skep_map_delete(map, NULL, 4) == SKEP_E_ARGUMENT);
	CHECK(skep_map_next_key(NULL, NULL, &byte, 1) == SKEP_E_ARGUMENT);
	CHECK(skep_map_next_key(map, NULL, NULL, 4) == SKEP_E_ARGUMENT);
	CHECK(skep_runtime_release_cpu(NULL) == 0);
	skep_packet_free(packet);
	skep_module_free(module);
	skep_object_free(object);
	skep_runtime_free(runtime);
	skep_packet_free(NULL);
	skep_module_free(NULL);
	skep_object_free(NULL);
	skep_runtime_free(NULL);
}

static int print_event(void *context, uint32_t cpu, const void *record, size_t size)
{
	const struct typed_event *event = record;
	int *left = context;

	CHECK(cpu == 0 && size == sizeof(*event));
	printf("event %" PRIu32 ": %" PRIu32 " bytes\n", event->number, event->length);
	return --*left == 0;
}

static int is_readable(const skep_ringbuf *events)
{
	struct pollfd readable = { .fd = skep_ringbuf_fd(events), .events = POLLIN };

	return poll(&readable, 1, 0) == 1;
}

static void consume(const char *path)
{
	struct typed typed = { 0 };
	skep_runtime *runtime;
	skep_object *object;
	skep_packet *packet;
	skep_ringbuf *events, *second;
	typed_limit_value limit = 2;
	typed_seen_value seen = 0;
	uint8_t frame[FRAME];
	int left = 2;

	CHECK(skep_runtime_new(NULL, &runtime) == SKEP_OK);
	CHECK(skep_object_open(path, &object) == SKEP_OK);
	CHECK(typed_load(&typed, runtime, object, NULL) == SKEP_OK);
	CHECK(skep_ringbuf_new(typed.maps.events, 0, &events) == SKEP_OK);
	CHECK(skep_ringbuf_new(typed.maps.events, 0, &second) == SKEP_E_BUSY);
	CHECK(skep_ringbuf_new(typed.maps.flows, 0, &second) == SKEP_E_ARGUMENT);
	printf("no ring: %s\n", skep_error_message());
	CHECK(!is_readable(events) && skep_ringbuf_poll(events, 0, print_event, &left) == 0);

	CHECK(typed_set_limit(&typed, &limit) == SKEP_OK);
	tcp_frame(frame, 10, 0, 0, 1);
	CHECK(skep_packet_new(frame, sizeof(frame), &packet) == SKEP_OK);
	for (int i = 0; i < 3; i++)
		run(typed.programs.count, packet, "counted");
	CHECK(typed_get_seen(&typed, &seen) == SKEP_OK && seen == 3);
	CHECK(skep_module_variable(typed.module, "seen", &limit, sizeof(limit)) == SKEP_E_ARGUMENT);
	CHECK(skep_module_set_variable(typed.module, "scale", &limit, sizeof(limit)) == SKEP_E_DENIED);
	printf("constant: %s\n", skep_error_message());

	CHECK(is_readable(events));
	CHECK(skep_ringbuf_poll(events, -1, print_event, &left) == 2);
	CHECK(is_readable(events));
	left = 9;
	CHECK(skep_ringbuf_poll(events, 1000, print_event, &left) == 1);
	CHECK(!is_readable(events) && skep_ringbuf_lost(events) == 0);
	skep_packet_free(packet);
	typed_free(&typed);
	CHECK(skep_ringbuf_poll(events, 0, print_event, &left) == 0);
	skep_ringbuf_free(events);
	skep_object_free(object);
	skep_runtime_free(runtime);
}

int main(int argc, char **argv)
{
	if (argc != 6)
		return 2;
	CHECK(strcmp(skep_version(), SKEP_VERSION) == 0);
	CHECK(strcmp(skep_error_message(), "") == 0);
	filter(argv[1]);
	sum(argv[2]);
	refuse(argv[3], argv[4]);
	pass_null(argv[1]);
	consume(argv[5]);
	return 0;
}
