/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * A host in C that does what it should not: wrong sizes and numbers, handles freed in every order, many threads.
 *
 *   attack PARITY
 */
#include "attack.h"

enum { THREADS = 4, ROUNDS = 8, ORDERS = 16 };

static int freed;

static void count_free(void *context)
{
	CHECK(context == &freed);
	freed++;
}

/* Sizes that no structure has; and one that is longer than ours, with an option set that we do not know. */
static void sizes(void)
{
	static const size_t wrong[] = { 0, 7, 4097, SIZE_MAX };
	union {
		size_t size;
		unsigned char bytes[512];
		skep_runtime_options options;
		skep_quota quota;
		skep_stats stats;
	} given = { 0 };
	skep_runtime *runtime = NULL;
	skep_tenant *tenant = NULL;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		given.size = wrong[i];
		CHECK(skep_runtime_new(&given.options, &runtime) == SKEP_E_ARGUMENT && !runtime);
		CHECK(skep_tenant_new("t", &given.quota, &tenant) == SKEP_E_ARGUMENT && !tenant);
		CHECK(skep_program_stats(valid_skep_program, &given.stats) == SKEP_E_ARGUMENT);
		CHECK(given.size == wrong[i]);
	}
	given.size = sizeof(given);
	given.bytes[sizeof(given) - 1] = 1;
	CHECK(skep_tenant_new("t", &given.quota, &tenant) == SKEP_E_ARGUMENT && says("byte 511"));
	/* A result that is longer than ours ends in zeroes, and one that is shorter is not overrun. */
	OK(skep_program_stats(valid_skep_program, &given.stats));
	CHECK(given.bytes[sizeof(given) - 1] == 0 && given.size == sizeof(given));
	memset(&given, 0x55, sizeof(given));
	given.size = 16;
	OK(skep_program_stats(valid_skep_program, &given.stats));
	CHECK(given.bytes[16] == 0x55);
}

static void helpers(void)
{
	skep_helper helper = { .size = sizeof(helper), .name = "h", .id = 2000, .call = nothing, .context = &freed,
			       .free_context = count_free };
	struct {
		skep_helper known;
		uint64_t option;
	} newer;
	skep_builder *builder;
	skep_runtime *runtime;

	freed = 0;
	OK(skep_builder_new(&builder));
	CHECK(skep_builder_helper(NULL, &helper) == SKEP_E_ARGUMENT && freed == 1);
	helper.params[0].kind = 12;
	CHECK(skep_builder_helper(builder, &helper) == SKEP_E_ARGUMENT && freed == 2);
	helper.params[0].kind = SKEP_PARAM_MEMORY;
	CHECK(skep_builder_helper(builder, &helper) == SKEP_E_ARGUMENT && says("at least 1") && freed == 3);
	helper.params[0].bytes = UINT32_MAX;
	CHECK(skep_builder_helper(builder, &helper) == SKEP_E_ARGUMENT && freed == 4);
	for (int i = 0; i < 5; i++)
		helper.params[i].kind = SKEP_PARAM_BYTES;
	CHECK(skep_builder_helper(builder, &helper) == SKEP_E_ARGUMENT && says("registers") && freed == 5);
	helper.params[0].kind = SKEP_PARAM_NONE, helper.result = 11;
	CHECK(skep_builder_helper(builder, &helper) == SKEP_E_ARGUMENT && freed == 6);
	helper.result = 0, helper.name = "\xff";
	CHECK(skep_builder_helper(builder, &helper) == SKEP_E_ARGUMENT && freed == 7);
	helper.name = "h", helper.call = NULL;
	CHECK(skep_builder_helper(builder, &helper) == SKEP_E_ARGUMENT && freed == 8);
	helper.call = nothing, helper.id = 0;
	CHECK(skep_builder_helper(builder, &helper) == SKEP_E_ARGUMENT && freed == 9);
	/* Options of a newer header. */
	newer.known = helper, newer.known.size = sizeof(newer), newer.option = 1, freed = 8;
	CHECK(skep_builder_helper(builder, &newer.known) == SKEP_E_ARGUMENT && says("unknown option") && freed == 9);
	newer.known.size = 1;
	CHECK(skep_builder_helper(builder, &newer.known) == SKEP_E_ARGUMENT && freed == 9);
	helper.params[0].kind = SKEP_PARAM_CALLBACK, helper.params[1].kind = SKEP_PARAM_NONE;
	CHECK(skep_builder_method(builder, valid_skep_type, &helper) == SKEP_E_ARGUMENT && freed == 10);
	CHECK(skep_builder_log(builder, NULL, &freed, count_free) == SKEP_E_ARGUMENT && freed == 11);
	CHECK(skep_builder_audit(builder, NULL, 0, &freed, count_free) == SKEP_E_ARGUMENT && freed == 12);
	CHECK(skep_linker_log(valid_skep_linker, NULL, &freed, count_free) == SKEP_E_ARGUMENT && freed == 13);

	/* What a builder keeps is freed with it; a number that is taken fails the build, and frees all. */
	helper.params[0].kind = SKEP_PARAM_NUMBER, helper.id = 2000;
	OK(skep_builder_helper(builder, &helper));
	OK(skep_builder_log(builder, log_nothing, &freed, count_free));
	CHECK(freed == 13);
	OK(skep_builder_log(builder, log_nothing, &freed, count_free));
	CHECK(freed == 14);
	skep_builder_free(builder);
	CHECK(freed == 16);
	OK(skep_builder_new(&builder));
	OK(skep_builder_helper(builder, &helper));
	OK(skep_builder_helper(builder, &helper));
	CHECK(skep_builder_build(builder, NULL, &runtime) == SKEP_E_ARGUMENT && says("2000"));
	CHECK(freed == 18 && skep_builder_build(builder, NULL, &runtime) == SKEP_E_ARGUMENT);
	skep_builder_free(builder);
}

static void types(void)
{
	skep_field field = { "f", SKEP_FIELD_NUMBER, 4, 0, 0, 0, NULL };
	skep_struct context = { "bad", &field, 1 };
	skep_verdict verdict = { "TOO_GREAT", (int64_t)1 << 40 };
	skep_type_options options = { .size = sizeof(options), .section = "bad", .context = &context };
	skep_type *type = NULL;

#define REFUSED() CHECK(skep_type_new(&options, &type) == SKEP_E_ARGUMENT && !type)
	options.section = "xdp";
	REFUSED();
	options.section = "no identifier";
	REFUSED();
	options.section = "bad", options.verdicts = &verdict, options.verdict_count = 1;
	REFUSED();
	options.verdicts = NULL;
	REFUSED();
	options.verdict_count = 0, context.count = SIZE_MAX;
	REFUSED();
	context.count = 0;
	REFUSED();
	context.count = 1, context.fields = NULL;
	REFUSED();
	context.fields = &field, field.bytes = 3;
	REFUSED();
	field.bytes = 4, field.kind = 4;
	REFUSED();
	field.kind = 0, field.flags = 8;
	REFUSED();
	field.flags = 0, field.count = UINT32_MAX;
	REFUSED();
	field.count = 0, field.name = NULL;
	REFUSED();
	field.name = "f", field.kind = SKEP_FIELD_BYTES, field.bytes = 0;
	REFUSED();
	field.kind = SKEP_FIELD_STRUCT, field.of = &context; /* contains itself */
	REFUSED();
#undef REFUSED
}

static void counts(void)
{
	static uint8_t some[64];
	size_t count = SIZE_MAX;

	CHECK(skep_map_lookup_batch(valid_skep_map, valid_skep_cursor, some, some, &count) == SKEP_E_ARGUMENT);
	CHECK(skep_map_update_batch(valid_skep_map, some, some, &count, SKEP_ANY) == SKEP_E_ARGUMENT);
	CHECK(skep_map_delete_batch(valid_skep_map, some, &count) == SKEP_E_ARGUMENT && count == SIZE_MAX);
	CHECK(skep_runtime_metrics(valid_skep_runtime, "r", NULL, SIZE_MAX, &(char *){ NULL }) == SKEP_E_ARGUMENT);
	CHECK(skep_map_lookup(valid_skep_map, some, SIZE_MAX, some, 8) == SKEP_E_ARGUMENT);
	CHECK(skep_packet_new(some, SIZE_MAX, &(skep_packet *){ NULL }) == SKEP_E_ARGUMENT);
	CHECK(skep_user_ringbuf_submit(valid_skep_user_ringbuf, some, SIZE_MAX, 0) == SKEP_E_ARGUMENT);
	CHECK(skep_program_array_set(valid_skep_program_array, UINT32_MAX, valid_skep_program) == SKEP_E_ARGUMENT);
	CHECK(skep_linker_variable(valid_skep_linker, "scale", some, SIZE_MAX) == SKEP_E_ARGUMENT);
	CHECK(skep_module_variable_at(valid_skep_module, SIZE_MAX, NULL, 0, NULL) == SKEP_E_NOT_FOUND);
	CHECK(skep_call_back(NULL, 1, NULL) == SKEP_E_ARGUMENT && skep_call_state(NULL) == NULL);
}

static unsigned random_state = 1;

static unsigned below(unsigned limit)
{
	random_state = random_state * 1103515245u + 12345u;
	return (random_state >> 16) % limit;
}

/* Frees a set of handles that lead to each other in another order each time, and uses those that are left. */
static void orders(const char *path)
{
	for (int order = 0; order < ORDERS; order++) {
		enum { RUNTIME, OBJECT, MODULE, HELD, MAP, HOOK, LINK, ARRAY, TENANT, LINKER, CURSOR, TYPE, ALL };
		int left[ALL];
		const skep_program *program;
		const skep_map *map;
		skep_type *type = attack_type();
		skep_runtime *runtime = attack_runtime(type);
		skep_object *object;
		skep_module *module;
		skep_program *held;
		skep_map *own;
		skep_hook *hook;
		skep_link *link;
		skep_program_array *array;
		skep_tenant *tenant;
		skep_linker *linker;
		skep_cursor *cursor;
		skep_packet *packet;
		uint32_t verdict;

		OK(skep_object_open(path, &object));
		OK(skep_tenant_new("t", NULL, &tenant));
		OK(skep_linker_new(runtime, object, &linker));
		OK(skep_linker_tenant(linker, tenant));
		OK(skep_linker_load(linker, &module));
		OK(skep_module_program(module, "jump", &program));
		OK(skep_program_hold(program, &held));
		OK(skep_module_map(module, "table", &map));
		OK(skep_map_hold(map, &own));
		OK(skep_hook_new(runtime, &hook));
		OK(skep_hook_attach(hook, program, &link));
		OK(skep_module_program_array(module, "jumps", &array));
		OK(skep_program_array_set(array, 1, program));
		OK(skep_cursor_new(&cursor));
		OK(skep_packet_new("packet", 6, &packet));
		for (int i = 0; i < ALL; i++)
			left[i] = i;
		for (int count = ALL; count > 0; count--) {
			unsigned at = below(count);
			int what = left[at];

			left[at] = left[count - 1];
			switch (what) {
			case RUNTIME: skep_runtime_free(runtime); break;
			case OBJECT: skep_object_free(object); break;
			case MODULE: skep_module_free(module); break;
			case HELD: skep_program_free(held), held = NULL; break;
			case MAP: skep_map_free(own), own = NULL; break;
			case HOOK: skep_hook_free(hook), hook = NULL; break;
			case LINK: skep_link_free(link); break;
			case ARRAY: skep_program_array_free(array), array = NULL; break;
			case TENANT: skep_tenant_free(tenant); break;
			case LINKER: skep_linker_free(linker), linker = NULL; break;
			case CURSOR: skep_cursor_free(cursor); break;
			default: skep_type_free(type); break;
			}
			if (held)
				OK(skep_program_run(held, packet, &verdict));
			if (hook)
				OK(skep_hook_run(hook, packet, NULL, NULL));
			if (own)
				CHECK(skep_map_value_size(own) == 8);
			if (array && held)
				OK(skep_program_array_set(array, 0, held));
			if (linker && count == ALL / 2) {
				skep_module *again;

				OK(skep_linker_load(linker, &again));
				skep_module_free(again);
			}
		}
		skep_packet_free(packet);
	}
}

struct shared {
	const char *path;
	skep_runtime *runtime;
	skep_object *object;
	skep_hook *hook;
	const skep_map *map;
};

/* Loads, attaches, replaces, runs, reads and frees, while others do the same with the same handles. */
static void *work(void *argument)
{
	const struct shared *shared = argument;
	skep_packet *packet;

	OK(skep_packet_new("packet", 6, &packet));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		skep_stats stats = { .size = sizeof(stats) };
		const skep_program *program;
		skep_program *held, *old;
		skep_module *module;
		skep_link *link;
		uint64_t value = i;
		uint32_t key = i % 8;
		char *text;
		int status;

		CHECK(skep_module_program(NULL, "count", &program) == SKEP_E_ARGUMENT && says("module is NULL"));
		OK(skep_module_load(shared->runtime, shared->object, NULL, &module));
		OK(skep_module_program(module, "count", &program));
		OK(skep_program_hold(program, &held));
		OK(skep_hook_attach(shared->hook, program, &link));
		skep_module_free(module);
		OK(skep_hook_run(shared->hook, packet, NULL, NULL));
		OK(skep_link_replace(link, held, &old));
		skep_program_free(old);
		OK(skep_program_stats(held, &stats));
		status = skep_map_update(shared->map, &key, sizeof(key), &value, sizeof(value), SKEP_ANY);
		CHECK(status == SKEP_OK);
		status = skep_map_lookup(shared->map, &key, sizeof(key), &value, sizeof(value));
		CHECK(status == SKEP_OK || status == SKEP_E_NOT_FOUND);
		skep_map_delete(shared->map, &key, sizeof(key));
		OK(skep_runtime_metrics(shared->runtime, "r", NULL, 0, &text));
		skep_text_free(text);
		skep_link_free(link);
		skep_program_free(held);
	}
	skep_packet_free(packet);
	return NULL;
}

static void threads(const char *path)
{
	struct shared shared = { path, valid_skep_runtime, valid_skep_object, NULL, valid_skep_map };
	pthread_t all[THREADS];

	OK(skep_hook_new(valid_skep_runtime, &shared.hook));
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&all[i], NULL, work, &shared) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
	skep_hook_free(shared.hook);
}

static void free_valid(void)
{
	skep_context_free(valid_skep_context);
	skep_world_free(valid_skep_world);
	skep_tenant_free(valid_skep_tenant);
	skep_ringbuf_free(valid_skep_ringbuf);
	skep_user_ringbuf_free(valid_skep_user_ringbuf);
	skep_cursor_free(valid_skep_cursor);
	skep_outer_map_free(valid_skep_outer_map);
	skep_program_array_free(valid_skep_program_array);
	skep_link_free(valid_skep_link);
	skep_hook_free(valid_skep_hook);
	skep_linker_free(valid_skep_linker);
	skep_builder_free(valid_skep_builder);
	skep_packet_free(valid_skep_packet);
	skep_map_free(valid_skep_map);
	skep_program_free(valid_skep_program);
	skep_module_free(valid_skep_module);
	skep_object_free(valid_skep_object);
	skep_runtime_free(valid_skep_runtime);
	skep_type_free(valid_skep_type);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	make_valid(argv[1]);
	sizes();
	helpers();
	types();
	counts();
	orders(argv[1]);
	threads(argv[1]);
	free_valid();
	printf("attack: nothing broke\n");
	return 0;
}
