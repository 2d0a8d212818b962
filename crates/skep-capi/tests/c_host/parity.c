/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A host in C that uses what hosts in Rust have: helpers, types of its own, hooks, limits, upgrades, worlds.
 *
 *   parity PARITY TYPED GROWN CARELESS RAW
 */
#include <poll.h>

#include "parity.h"

uint8_t frame[FRAME] = { 0xaa, 0xbb, 0xcc };
int freed;

void count_free(void *context)
{
	CHECK(context);
	freed++;
}

skep_packet *new_packet(void)
{
	skep_packet *packet;

	OK(skep_packet_new(frame, sizeof(frame), &packet));
	return packet;
}

uint32_t run(const skep_module *module, const char *name, void *state)
{
	const skep_program *program;
	skep_packet *packet = new_packet();
	uint32_t verdict = 99;

	OK(skep_module_program(module, name, &program));
	if (state)
		OK(skep_program_run_with(program, packet, state, &verdict));
	else
		OK(skep_program_run(program, packet, &verdict));
	skep_packet_free(packet);
	return verdict;
}

/* ---- Helpers ---- */

static int64_t sum(void *context, skep_call *call, const skep_value *args)
{
	const uint8_t *bytes = args[0].data;
	int64_t result = 0;
	char name[3];

	CHECK(context == &freed && skep_call_program(call, name, sizeof(name)) == 4 && strcmp(name, "ca") == 0);
	CHECK(skep_call_cpu(call) < 8 && skep_call_packet_size(call) == 0);
	for (size_t i = 0; i < args[0].size; i++)
		result += bytes[i];
	return result;
}

static int64_t fill(void *context, skep_call *call, const skep_value *args)
{
	uint8_t *bytes = args[0].data;

	(void)context, (void)call;
	CHECK(args[0].size == 8);
	for (int i = 0; i < 8; i++) {
		CHECK(bytes[i] == 0);
		bytes[i] = i + 1;
	}
	return 0;
}

static int64_t each(void *context, skep_call *call, const skep_value *args)
{
	int32_t result = 0;

	(void)context;
	for (uint64_t value = 0; value < args[1].number; value++) {
		OK(skep_call_back(call, value, &result));
		OK(skep_call_back(call, 0, NULL));
		if (result)
			return value;
	}
	return -ENOENT;
}

static int64_t byte(void *context, skep_call *call, const skep_value *args)
{
	uint8_t found = 0;

	(void)context;
	CHECK(skep_call_packet_size(call) == FRAME);
	if (skep_call_packet_read(call, args[1].number, &found, 1) != SKEP_OK)
		CHECK(says("of 64"));
	return found;
}

static int64_t look(void *context, skep_call *call, const skep_value *args)
{
	uint32_t key = args[1].number;
	uint64_t value;

	(void)context, (void)call;
	if (skep_map_lookup(args[0].data, &key, sizeof(key), &value, sizeof(value)) != SKEP_OK)
		return -ENOENT;
	return value;
}

static int64_t add_to_state(void *context, skep_call *call, const skep_value *args)
{
	uint64_t *state = skep_call_state(call);

	(void)context;
	return state ? (int64_t)(*state += args[0].number) : -ENXIO;
}

static int64_t or_null(void *context, skep_call *call, const skep_value *args)
{
	(void)context, (void)call;
	if (!args[0].data)
		return -EINVAL;
	((uint8_t *)args[0].data)[3] = 9;
	return -5000; /* no error number: programs get -ERANGE */
}

static int64_t note(void *context, skep_call *call, const skep_value *args);

static const skep_helper helpers[] = {
	{ sizeof(skep_helper), "host_sum", 1000, SKEP_RESULT_I64, { { SKEP_PARAM_BYTES, 0 } }, sum, &freed, count_free },
	{ sizeof(skep_helper), "host_fill", 1001, SKEP_RESULT_ERRNO, { { SKEP_PARAM_MEMORY_OUT, 8 } }, fill, NULL, NULL },
	{ sizeof(skep_helper), "host_each", 1002, SKEP_RESULT_ERRNO,
	  { { SKEP_PARAM_CALLBACK, 0 }, { SKEP_PARAM_NUMBER, 0 } }, each, NULL, NULL },
	{ sizeof(skep_helper), "host_byte", 1003, SKEP_RESULT_U8, { { SKEP_PARAM_PACKET, 0 }, { SKEP_PARAM_NUMBER, 0 } },
	  byte, NULL, NULL },
	{ sizeof(skep_helper), "host_count", 1004, SKEP_RESULT_ERRNO, { { SKEP_PARAM_MAP, 0 }, { SKEP_PARAM_NUMBER, 0 } },
	  look, NULL, NULL },
	{ sizeof(skep_helper), "host_state", 1005, SKEP_RESULT_ERRNO, { { SKEP_PARAM_NUMBER, 0 } }, add_to_state, NULL,
	  NULL },
	{ sizeof(skep_helper), "host_or_null", 1006, SKEP_RESULT_ERRNO, { { SKEP_PARAM_BYTES_INOUT_OR_NULL, 0 } },
	  or_null, NULL, NULL },
};

/* ---- A type of the host's own: its structure is not in the order of what programs see ---- */

struct peer {
	uint16_t port;
	uint32_t score;
};

struct job {
	struct peer *peer;
	uint8_t *scratch;
	skep_bytes name;
	uint8_t tag[4];
	int16_t priority;
	uint32_t number;
	uint32_t noted;
};

static const skep_field peer_fields[] = {
	{ "score", SKEP_FIELD_NUMBER, 4, 0, SKEP_FIELD_WRITABLE, offsetof(struct peer, score), NULL },
	{ "port", SKEP_FIELD_NUMBER, 2, 0, 0, offsetof(struct peer, port), NULL },
};
static const skep_struct peer_struct = { "peer", peer_fields, 2 };
static const skep_field job_fields[] = {
	{ "number", SKEP_FIELD_NUMBER, 4, 0, 0, offsetof(struct job, number), NULL },
	{ "priority", SKEP_FIELD_NUMBER, 2, 0, SKEP_FIELD_SIGNED | SKEP_FIELD_WRITABLE, offsetof(struct job, priority),
	  NULL },
	{ "tag", SKEP_FIELD_NUMBER, 1, 4, 0, offsetof(struct job, tag), NULL },
	{ "name", SKEP_FIELD_SLICE, 0, 0, 0, offsetof(struct job, name), NULL },
	{ "scratch", SKEP_FIELD_BYTES, 8, 0, SKEP_FIELD_WRITABLE | SKEP_FIELD_NULLABLE, offsetof(struct job, scratch), NULL },
	{ "peer", SKEP_FIELD_STRUCT, 0, 0, SKEP_FIELD_WRITABLE | SKEP_FIELD_NULLABLE, offsetof(struct job, peer),
	  &peer_struct },
};
static const skep_struct job_struct = { "job", job_fields, 6 };
static const skep_verdict job_verdicts[] = { { "JOB_LATER", 0 }, { "JOB_NOW", 1 }, { "JOB_NEVER", 2 } };
static const skep_type_options job_type = { sizeof(skep_type_options), "job", &job_struct, "job_verdict", job_verdicts, 3 };

static int64_t note(void *context, skep_call *call, const skep_value *args)
{
	(void)context, (void)call;
	((struct job *)args[0].data)->noted = args[1].number;
	/* What was lent stays lent, and the run gives back to it, whatever the structure says now. */
	((struct job *)args[0].data)->peer = NULL;
	return 77;
}

static const skep_helper job_note = { .size = sizeof(skep_helper),
				      .name = "job_note",
				      .result = SKEP_RESULT_U32,
				      .params = { { SKEP_PARAM_NUMBER, 0 } },
				      .call = note };

static int collect(void *context, const skep_program *program, uint64_t result)
{
	int64_t *results = context;
	char name[32];

	skep_program_name(program, name, sizeof(name));
	CHECK(strcmp(name, "schedule") == 0 || strcmp(name, "count") == 0);
	results[++results[0]] = result;
	return results[0] == 2;
}

static void types(skep_runtime *runtime, const skep_module *module, const skep_type *type)
{
	uint8_t scratch[8] = { 0 }, text[] = "x";
	struct peer peer = { 80, 0 };
	struct job job = { &peer, scratch, { text, 1 }, { 5, 6, 7, 8 }, 1, 12, 0 };
	int64_t results[4] = { 0 };
	const skep_program *program, *xdp;
	skep_hook *hook;
	skep_link *link, *second;
	char name[32], *header;
	int32_t verdict = 9;

	OK(skep_module_program(module, "schedule", &program));
	OK(skep_module_program(module, "count", &xdp));
	CHECK(skep_program_type(program, name, sizeof(name)) == 3 && strcmp(name, "job") == 0);
	OK(skep_program_run_typed(program, type, &job, NULL, &verdict));
	CHECK(verdict == 1 && job.noted == 'x' && job.priority == -12 && scratch[7] == 5);
	CHECK(!job.peer && peer.score == 80);
	CHECK(skep_type_verdict(type, verdict, name, sizeof(name)) == 7 && strcmp(name, "JOB_NOW") == 0);
	CHECK(skep_type_verdict(type, 9, name, sizeof(name)) == 0 && name[0] == 0);
	job.peer = NULL, job.scratch = NULL, job.name.data = NULL, job.name.size = 0;
	OK(skep_program_run_typed(program, type, &job, NULL, &verdict));
	CHECK(verdict == 0 && job.priority == -12);
	job.name.size = 1;
	CHECK(skep_program_run_typed(program, type, &job, NULL, &verdict) == SKEP_E_ARGUMENT && says("NULL"));
	job.name.data = text, job.name.size = SIZE_MAX;
	CHECK(skep_program_run_typed(program, type, &job, NULL, &verdict) == SKEP_E_ARGUMENT);
	job.name.size = 1;
	CHECK(skep_program_run_typed(xdp, type, &job, NULL, &verdict) == SKEP_E_ARGUMENT && says("SEC(\"job\")"));
	OK(skep_type_header(type, &header));
	CHECK(strstr(header, "struct job {") && strstr(header, "JOB_NEVER = 2"));
	skep_text_free(header);

	OK(skep_hook_new(runtime, &hook));
	OK(skep_hook_attach(hook, program, &link));
	OK(skep_hook_attach(hook, program, &second));
	CHECK(skep_hook_attach(hook, xdp, &second) == SKEP_E_ARGUMENT);
	OK(skep_hook_run_typed(hook, type, &job, collect, results));
	CHECK(results[0] == 2 && results[1] == 1 && results[2] == 1);
	skep_link_free(second);
	OK(skep_hook_run_typed(hook, type, &job, NULL, NULL));
	skep_hook_free(hook);
	skep_link_free(link);
}

/* ---- Everything about packets and maps ---- */

static void hooks(skep_runtime *runtime, const skep_module *module)
{
	skep_stats stats = { .size = sizeof(stats) };
	skep_outcome outcome = { .size = sizeof(outcome) };
	skep_packet_info info = { .size = sizeof(info), .ingress_ifindex = 4, .vlan_protocol = 0x8100, .vlan_tci = 7 };
	skep_bucket buckets[8] = { { 0 } };
	const skep_program *count, *jump, *redirect;
	skep_packet *packet = new_packet();
	skep_program *old, *held;
	int64_t results[4] = { 0 };
	skep_hook *hook;
	skep_link *link;
	size_t number = 8;
	char *text;

	OK(skep_module_program(module, "count", &count));
	OK(skep_module_program(module, "jump", &jump));
	OK(skep_module_program(module, "redirect", &redirect));
	OK(skep_runtime_enable_stats(runtime, 1));
	OK(skep_program_reset_stats(count));
	OK(skep_hook_new(runtime, &hook));
	OK(skep_hook_attach(hook, count, &link));
	OK(skep_hook_count(hook, &number));
	CHECK(number == 1);
	OK(skep_hook_run(hook, packet, collect, results));
	CHECK(results[0] == 1 && results[1] == 3);
	OK(skep_link_stats(link, &stats));
	CHECK(stats.run_cnt == 1 && stats.median_ns <= stats.p99_ns);
	OK(skep_link_replace(link, jump, &old));
	OK(skep_link_replace(link, count, NULL));
	OK(skep_runtime_synchronize(runtime));
	OK(skep_program_run(old, packet, &(uint32_t){ 0 }));
	OK(skep_program_stats(count, &stats));
	CHECK(stats.run_cnt == 2 && stats.size == sizeof(stats));
	number = 8;
	OK(skep_program_histogram(count, buckets, &number));
	CHECK(number >= 1 && number <= 2 && buckets[0].count >= 1 && buckets[0].from_ns <= buckets[0].to_ns);
	number = 0;
	OK(skep_program_histogram(count, NULL, &number));
	CHECK(number >= 1);
	OK(skep_runtime_metrics(runtime, "edge", NULL, 0, &text));
	CHECK(strstr(text, "program=\"count\""));
	skep_text_free(text);
	OK(skep_runtime_enable_stats(runtime, 0));
	skep_program_free(old);
	skep_link_free(link);
	OK(skep_hook_count(hook, &number));
	CHECK(number == 0);
	skep_hook_free(hook);

	OK(skep_packet_set_info(packet, &info));
	OK(skep_program_outcome(redirect, packet, &outcome));
	CHECK(outcome.verdict == 4 && outcome.redirect == SKEP_REDIRECT_DEVICE && outcome.target == 5 && !outcome.changed);
	outcome.size = 3;
	CHECK(skep_program_outcome(redirect, packet, &outcome) == SKEP_E_ARGUMENT && says("sizeof(struct skep_outcome)"));
	memset(&info, 0xff, sizeof(info));
	info.size = sizeof(info);
	OK(skep_packet_info_of(packet, &info));
	CHECK(info.ingress_ifindex == 4 && info.vlan_protocol == 0x8100 && info.vlan_tci == 7 && info.cb[4] == 0);
	info.vlan_tci = 1 << 16;
	CHECK(skep_packet_set_info(packet, &info) == SKEP_E_ARGUMENT && says("vlan_tci"));

	OK(skep_program_hold(count, &held));
	OK(skep_program_run(held, packet, &(uint32_t){ 0 }));
	skep_program_free(held);
	skep_packet_free(packet);
}

static void maps(skep_runtime *runtime, const skep_module *module)
{
	uint32_t keys[8], key = 5, number = 7, names[2] = { 0 };
	uint64_t values[8], value = 55, name = 7, *all;
	skep_map_info info = { .size = sizeof(info) };
	skep_runtime_options small = { .size = sizeof(small), .cpus = 4, .map_memory = 1 };
	skep_runtime *narrow;
	const skep_map *table, *hits, *queue, *filter, *commands;
	skep_user_ringbuf *ring, *second;
	skep_program_array *jumps;
	skep_outer_map *outer;
	const skep_program *count;
	skep_program *found;
	skep_cursor *cursor;
	skep_map *inner, *same;
	char text[16];
	size_t left;
	int has = 9;

	OK(skep_module_map(module, "table", &table));
	OK(skep_module_map(module, "hits", &hits));
	OK(skep_module_map(module, "queue", &queue));
	OK(skep_module_map(module, "filter", &filter));
	OK(skep_module_map(module, "commands", &commands));
	OK(skep_module_program(module, "count", &count));

	OK(skep_map_info_of(table, &info));
	CHECK(info.kind == 1 && info.key_size == 4 && info.value_size == 8 && info.max_entries == 6 && !info.frozen);
	CHECK(skep_map_name(table, text, sizeof(text)) == 5 && strcmp(text, "table") == 0);
	for (uint32_t i = 0; i < 6; i++)
		keys[i] = i, values[i] = i * 11;
	left = 6;
	OK(skep_map_update_batch(table, keys, values, &left, SKEP_NOEXIST));
	CHECK(left == 6);
	left = 1;
	CHECK(skep_map_update_batch(table, keys, values, &left, SKEP_NOEXIST) == SKEP_E_EXISTS && left == 0);
	value = 0;
	CHECK(run(module, "call", &value) == 100 && value == 15);
	OK(skep_cursor_new(&cursor));
	for (number = 0; !skep_cursor_at_end(cursor); number += left) {
		left = 8;
		OK(skep_map_lookup_batch(table, cursor, keys, values, &left));
		for (size_t i = 0; i < left; i++)
			CHECK(values[i] == keys[i] * 11);
	}
	CHECK(number == 6);
	skep_cursor_free(cursor);
	OK(skep_map_lookup_and_delete(table, &key, sizeof(key), &value, sizeof(value)));
	CHECK(value == 55);
	CHECK(skep_map_lookup_and_delete(table, &key, sizeof(key), &value, sizeof(value)) == SKEP_E_NOT_FOUND);
	keys[0] = 1, keys[1] = 5, left = 2;
	CHECK(skep_map_delete_batch(table, keys, &left) == SKEP_E_NOT_FOUND && left == 1);

	/* Of per-CPU kinds the host sees the values of all virtual CPUs. */
	CHECK(skep_map_value_size(hits) == 8 * skep_runtime_cpus(runtime));
	all = malloc(skep_map_value_size(hits));
	CHECK(all);
	key = 0, value = 0;
	OK(skep_map_lookup(hits, &key, sizeof(key), all, skep_map_value_size(hits)));
	for (uint32_t cpu = 0; cpu < skep_runtime_cpus(runtime); cpu++)
		value += all[cpu];
	CHECK(value >= 4);
	free(all);

	number = 70;
	OK(skep_map_push(queue, &number, sizeof(number), SKEP_ANY));
	number = 71;
	OK(skep_map_push(queue, &number, sizeof(number), SKEP_ANY));
	CHECK(skep_map_push(queue, &number, sizeof(number), SKEP_ANY) == SKEP_E_FULL);
	OK(skep_map_peek(queue, &number, sizeof(number)));
	CHECK(number == 70 && skep_map_pop(queue, &number, 3) == SKEP_E_ARGUMENT);
	OK(skep_map_pop(queue, &number, sizeof(number)));
	OK(skep_map_pop(queue, &number, sizeof(number)));
	CHECK(number == 71 && skep_map_pop(queue, &number, sizeof(number)) == SKEP_E_NOT_FOUND);
	left = 1;
	CHECK(skep_map_delete_batch(queue, keys, &left) == SKEP_E_ARGUMENT);
	OK(skep_map_push(filter, &number, sizeof(number), SKEP_ANY));
	OK(skep_map_contains(filter, &number, sizeof(number), &has));
	CHECK(has == 1);

	CHECK(run(module, "jump", NULL) == 0);
	OK(skep_module_program_array(module, "jumps", &jumps));
	CHECK(skep_module_program_array(module, "table", &jumps) == SKEP_E_NOT_FOUND && says("it has jumps"));
	CHECK(skep_program_array_len(jumps) == 2);
	OK(skep_program_array_set(jumps, 1, count));
	CHECK(skep_program_array_set(jumps, 2, count) == SKEP_E_ARGUMENT);
	CHECK(run(module, "jump", NULL) == 3);
	OK(skep_program_array_get(jumps, 1, &found));
	CHECK(skep_program_name(found, text, sizeof(text)) == 5);
	skep_program_free(found);
	CHECK(skep_program_array_get(jumps, 0, &found) == SKEP_E_NOT_FOUND);
	OK(skep_program_array_remove(jumps, 1));
	CHECK(skep_program_array_remove(jumps, 1) == SKEP_E_NOT_FOUND && run(module, "jump", NULL) == 0);
	OK(skep_program_array_set(jumps, 1, count));
	skep_program_array_free(jumps);

	key = 0;
	OK(skep_module_outer_map(module, "by_index", &outer));
	OK(skep_runtime_new(&small, &narrow));
	CHECK(skep_outer_map_new_inner(outer, narrow, &inner) == SKEP_E_MEMORY);
	skep_runtime_free(narrow);
	OK(skep_outer_map_new_inner(outer, runtime, &inner));
	value = 20;
	OK(skep_map_update(inner, &key, sizeof(key), &value, sizeof(value), SKEP_ANY));
	names[0] = 1;
	OK(skep_outer_map_set(outer, names, 4, inner));
	CHECK(skep_outer_map_set(outer, names, 8, inner) == SKEP_E_ARGUMENT);
	CHECK(skep_outer_map_set(outer, names, 4, table) == SKEP_E_OBJECT);
	OK(skep_outer_map_get(outer, names, 4, &same));
	CHECK(same == inner);
	skep_map_free(same);
	CHECK(skep_outer_map_get(outer, &key, 4, &same) == SKEP_E_NOT_FOUND);
	skep_outer_map_free(outer);
	skep_map_free(inner);
	CHECK(run(module, "nested", NULL) == 20);
	OK(skep_module_outer_map(module, "by_name", &outer));
	OK(skep_outer_map_new_inner(outer, runtime, &inner));
	value = 3;
	OK(skep_map_update(inner, &key, sizeof(key), &value, sizeof(value), SKEP_ANY));
	OK(skep_outer_map_set(outer, &name, sizeof(name), inner));
	CHECK(run(module, "nested", NULL) == 23);
	OK(skep_outer_map_remove(outer, &name, sizeof(name)));
	CHECK(skep_outer_map_remove(outer, &name, sizeof(name)) == SKEP_E_NOT_FOUND && run(module, "nested", NULL) == 20);
	skep_outer_map_free(outer);
	skep_map_free(inner);
	CHECK(skep_module_outer_map(module, "table", &outer) == SKEP_E_NOT_FOUND && says("by_name"));

	OK(skep_user_ringbuf_new(commands, &ring));
	CHECK(skep_user_ringbuf_new(commands, &second) == SKEP_E_BUSY);
	CHECK(skep_user_ringbuf_new(table, &second) == SKEP_E_ARGUMENT);
	number = 40;
	OK(skep_user_ringbuf_submit(ring, &number, sizeof(number), -1));
	number = 2;
	OK(skep_user_ringbuf_submit(ring, &number, sizeof(number), 0));
	CHECK(poll(&(struct pollfd){ .fd = skep_user_ringbuf_fd(ring), .events = POLLIN }, 1, 0) == 1);
	CHECK(run(module, "drain", NULL) == 42 && run(module, "drain", NULL) == 0);
	CHECK(skep_user_ringbuf_submit(ring, frame, 1 << 20, -1) == SKEP_E_ARGUMENT || says("no room"));
	skep_user_ringbuf_free(ring);

	OK(skep_map_hold(table, &same));
	OK(skep_map_freeze(same));
	CHECK(skep_map_update(table, &key, sizeof(key), &value, sizeof(value), SKEP_ANY) == SKEP_E_DENIED);
	OK(skep_map_info_of(table, &info));
	CHECK(info.frozen);
	skep_map_free(same);
}

static void listing(const skep_object *object, const skep_module *module)
{
	skep_variable variable = { .size = sizeof(variable) };
	size_t count = skep_module_program_count(module);
	char name[32], longer[3];
	int found = 0;

	CHECK(count == 9 && skep_object_program_count(object) == 9 && !skep_module_program_at(module, count));
	CHECK(skep_object_program_at(object, 0, name, sizeof(name)) == 5 && strcmp(name, "count") == 0);
	CHECK(skep_object_program_at(object, count, name, sizeof(name)) == 0);
	for (size_t i = 0; i < count; i++) {
		skep_program_name(skep_module_program_at(module, i), name, sizeof(name));
		CHECK(skep_object_program_at(object, i, longer, sizeof(longer)) == strlen(name) && longer[2] == 0);
	}
	count = skep_module_map_count(module);
	CHECK(count >= 8 && skep_module_map_at(module, count - 1) && !skep_module_map_at(module, count));
	count = skep_module_variable_count(module);
	for (size_t i = 0; i < count; i++) {
		OK(skep_module_variable_at(module, i, name, sizeof(name), &variable));
		if (strcmp(name, "scale") == 0)
			found += variable.bytes == 4 && variable.read_only == 1;
		if (strcmp(name, "total") == 0)
			found += variable.bytes == 8 && variable.read_only == 0;
	}
	CHECK(found == 2);
	CHECK(skep_module_variable_at(module, count, name, sizeof(name), NULL) == SKEP_E_NOT_FOUND);
}

struct log {
	int lines;
	char last[128];
};

static void keep_message(void *context, const char *program, const char *message)
{
	struct log *log = context;

	log->lines++;
	snprintf(log->last, sizeof(log->last), "%s: %s", program, message);
}

static void count_line(void *context, const char *line)
{
	CHECK(line);
	((struct log *)context)->lines++;
}

static int keep_record(void *context, const char *record)
{
	struct log *log = context;

	CHECK(record[0] == '{');
	log->lines++;
	snprintf(log->last, sizeof(log->last), "%s", record);
	return 0;
}

static void everything(const char *path)
{
	skep_runtime_options options = { .size = sizeof(options), .cpus = 8, .max_walked = 500000 };
	struct log log = { 0 }, audit = { 0 }, lines = { 0 };
	const skep_program *program;
	skep_context *context;
	skep_builder *builder;
	skep_runtime *runtime;
	skep_object *object;
	skep_linker *linker;
	skep_module *module;
	skep_type *type;
	uint64_t result = 9;
	uint32_t scale = 3;
	char *header;
	size_t len;

	OK(skep_type_new(&job_type, &type));
	OK(skep_builder_new(&builder));
	for (size_t i = 0; i < sizeof(helpers) / sizeof(helpers[0]); i++)
		OK(skep_builder_helper(builder, &helpers[i]));
	OK(skep_builder_type(builder, type));
	OK(skep_builder_method(builder, type, &job_note));
	OK(skep_builder_log(builder, keep_message, &log, count_free));
	OK(skep_builder_audit(builder, keep_record, 1, &audit, count_free));
	OK(skep_builder_build(builder, &options, &runtime));
	CHECK(skep_builder_build(builder, &options, &runtime) == SKEP_E_ARGUMENT && says("skep_builder_new"));
	skep_builder_free(builder);
	CHECK(skep_runtime_cpus(runtime) == 8);
	OK(skep_runtime_header(runtime, &header));
	CHECK(strstr(header, "host_sum") && strstr(header, "1006"));
	skep_text_free(header);

	OK(skep_object_open(path, &object));
	OK(skep_linker_new(runtime, object, &linker));
	OK(skep_linker_variable(linker, "scale", &scale, sizeof(scale)));
	OK(skep_linker_max_entries(linker, "table", 6));
	OK(skep_linker_sleepable(linker, 0));
	OK(skep_linker_log(linker, count_line, &lines, count_free));
	OK(skep_linker_load(linker, &module));
	CHECK(lines.lines > 10 && audit.lines == 1 && strstr(audit.last, "time"));
	OK(skep_linker_variable(linker, "scale", &scale, 3));
	CHECK(skep_linker_load(linker, &module) == SKEP_E_ARGUMENT && says("scale has 4 bytes"));
	skep_linker_free(linker);
	CHECK(skep_runtime_audit_failures(runtime) == 0);

	CHECK(run(module, "count", NULL) == 3 && strcmp(log.last, "count: counted 0") == 0);
	listing(object, module);
	skep_object_free(object);
	types(runtime, module, type);
	hooks(runtime, module);
	maps(runtime, module);

	OK(skep_module_program(module, "only_disks", &program));
	OK(skep_context_new(program, &context));
	OK(skep_context_set(context, "major", 8));
	OK(skep_program_run_context(program, context, &result));
	CHECK(result == 1);
	CHECK(skep_context_set(context, "minister", 8) == SKEP_E_ARGUMENT && says("major"));
	OK(skep_context_field(context, "major", &result));
	CHECK(result == 8 && skep_context_set_data(context, frame, 4) == SKEP_E_ARGUMENT);
	skep_context_data(context, &len);
	CHECK(len == 0);
	skep_context_free(context);

	/* The program, not the runtime's handle, keeps the log and the helpers. */
	skep_type_free(type);
	skep_runtime_free(runtime);
	OK(skep_module_program(module, "count", &program));
	freed = 0;
	CHECK(run(module, "count", NULL) == 3 && freed == 0);
	skep_module_free(module);
}
int main(int argc, char **argv)
{
	if (argc != 7)
		return 2;
	everything(argv[1]);
	limits(argv[1]);
	upgrade(argv[2], argv[3]);
	refusal(argv[4]);
	worlds(argv[1]);
	steps(argv[6]);
	raw(argv[5]);
	printf("parity: all is as in Rust\n");
	return 0;
}
