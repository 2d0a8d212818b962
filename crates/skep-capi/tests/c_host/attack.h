/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A valid handle of each kind, for programs that pass everything valid but one argument.
 */
#ifndef ATTACK_H
#define ATTACK_H

#include "check.h"

static skep_runtime *valid_skep_runtime;
static skep_object *valid_skep_object;
static skep_module *valid_skep_module;
static skep_program *valid_skep_program;
static skep_map *valid_skep_map;
static skep_packet *valid_skep_packet;
static skep_builder *valid_skep_builder;
static skep_linker *valid_skep_linker;
static skep_type *valid_skep_type;
static skep_context *valid_skep_context;
static skep_hook *valid_skep_hook;
static skep_link *valid_skep_link;
static skep_program_array *valid_skep_program_array;
static skep_outer_map *valid_skep_outer_map;
static skep_cursor *valid_skep_cursor;
static skep_user_ringbuf *valid_skep_user_ringbuf;
static skep_ringbuf *valid_skep_ringbuf;
static skep_tenant *valid_skep_tenant;
static skep_world *valid_skep_world;

static inline int64_t nothing(void *context, skep_call *call, const skep_value *args)
{
	(void)context, (void)call, (void)args;
	return 0;
}

static inline void log_nothing(void *context, const char *program, const char *message)
{
	(void)context, (void)program, (void)message;
}

/* A runtime with helpers of these numbers, so that all programs of the object can be loaded. */
static inline skep_runtime *attack_runtime(const skep_type *type)
{
	static const uint32_t params[7][3] = {
		{ SKEP_PARAM_BYTES }, { SKEP_PARAM_MEMORY_OUT }, { SKEP_PARAM_CALLBACK, SKEP_PARAM_NUMBER },
		{ SKEP_PARAM_PACKET, SKEP_PARAM_NUMBER }, { SKEP_PARAM_MAP, SKEP_PARAM_NUMBER },
		{ SKEP_PARAM_NUMBER }, { SKEP_PARAM_BYTES_INOUT_OR_NULL },
	};
	skep_helper helper = { .size = sizeof(helper), .name = "job_note", .result = SKEP_RESULT_U32, .call = nothing };
	skep_builder *builder;
	skep_runtime *runtime;

	OK(skep_builder_new(&builder));
	OK(skep_builder_log(builder, log_nothing, NULL, NULL));
	helper.params[0].kind = SKEP_PARAM_NUMBER;
	OK(skep_builder_method(builder, type, &helper));
	helper.name = "one", helper.result = SKEP_RESULT_ERRNO;
	for (uint32_t i = 0; i < 7; i++) {
		helper.id = 1000 + i;
		for (int at = 0; at < 3; at++)
			helper.params[at].kind = params[i][at], helper.params[at].bytes = 8;
		if (i == 3)
			helper.result = SKEP_RESULT_U8;
		OK(skep_builder_helper(builder, &helper));
		helper.result = SKEP_RESULT_ERRNO;
	}
	OK(skep_builder_build(builder, NULL, &runtime));
	skep_builder_free(builder);
	return runtime;
}

static inline skep_type *attack_type(void)
{
	static const skep_field score[] = { { "score", SKEP_FIELD_NUMBER, 4, 0, SKEP_FIELD_WRITABLE, 0, NULL },
					    { "port", SKEP_FIELD_NUMBER, 2, 0, 0, 4, NULL } };
	static const skep_struct peer = { "peer", score, 2 };
	static const uint32_t both = SKEP_FIELD_WRITABLE | SKEP_FIELD_NULLABLE;
	const skep_field fields[] = { { "number", SKEP_FIELD_NUMBER, 4, 0, 0, 0, NULL },
				      { "priority", SKEP_FIELD_NUMBER, 2, 0, SKEP_FIELD_SIGNED | SKEP_FIELD_WRITABLE, 4, NULL },
				      { "tag", SKEP_FIELD_NUMBER, 1, 4, 0, 8, NULL },
				      { "name", SKEP_FIELD_SLICE, 0, 0, 0, 16, NULL },
				      { "scratch", SKEP_FIELD_BYTES, 8, 0, both, 32, NULL },
				      { "peer", SKEP_FIELD_STRUCT, 0, 0, both, 40, &peer } };
	const skep_struct job = { "job", fields, 6 };
	skep_type_options options = { .size = sizeof(options), .section = "job", .context = &job };
	skep_type *type;

	OK(skep_type_new(&options, &type));
	return type;
}

static inline void make_valid(const char *parity)
{
	const skep_program *program;
	const skep_map *map, *commands;

	valid_skep_type = attack_type();
	valid_skep_runtime = attack_runtime(valid_skep_type);
	OK(skep_object_open(parity, &valid_skep_object));
	OK(skep_module_load(valid_skep_runtime, valid_skep_object, NULL, &valid_skep_module));
	OK(skep_module_program(valid_skep_module, "count", &program));
	OK(skep_program_hold(program, &valid_skep_program));
	OK(skep_module_map(valid_skep_module, "table", &map));
	OK(skep_map_hold(map, &valid_skep_map));
	OK(skep_packet_new("packet", 6, &valid_skep_packet));
	OK(skep_builder_new(&valid_skep_builder));
	OK(skep_linker_new(valid_skep_runtime, valid_skep_object, &valid_skep_linker));
	OK(skep_hook_new(valid_skep_runtime, &valid_skep_hook));
	OK(skep_hook_attach(valid_skep_hook, valid_skep_program, &valid_skep_link));
	OK(skep_module_program_array(valid_skep_module, "jumps", &valid_skep_program_array));
	OK(skep_module_outer_map(valid_skep_module, "by_index", &valid_skep_outer_map));
	OK(skep_cursor_new(&valid_skep_cursor));
	OK(skep_module_map(valid_skep_module, "commands", &commands));
	OK(skep_user_ringbuf_new(commands, &valid_skep_user_ringbuf));
	OK(skep_module_map(valid_skep_module, "records", &commands));
	OK(skep_ringbuf_new(commands, 0, &valid_skep_ringbuf));
	OK(skep_tenant_new("tenant", NULL, &valid_skep_tenant));
	OK(skep_world_parse("[[device]]\nname = \"x\"\nindex = 1\n", &valid_skep_world));
	OK(skep_module_program(valid_skep_module, "only_disks", &program));
	OK(skep_context_new(program, &valid_skep_context));
}

#endif
