/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The part of the host `parity` about limits, upgrades, refusals and worlds.
 */
#include "parity.h"

/* ---- Limits ---- */

static int refuse_record(void *context, const char *record)
{
	CHECK(!context && strstr(record, "programs"));
	return 1;
}

static void *spin(void *program)
{
	skep_packet *packet = new_packet();
	uint32_t verdict;
	int status;

	do
		status = skep_program_run(program, packet, &verdict);
	while (status == SKEP_OK);
	CHECK(status == SKEP_E_ENDED && says("interrupted"));
	skep_packet_free(packet);
	return NULL;
}

/* Loads one program of the object, which needs no helper. */
static int load_one(const skep_runtime *runtime, const skep_object *object, const char *name, const skep_tenant *tenant,
		    skep_module **module)
{
	skep_linker *linker;
	int status;

	OK(skep_linker_new(runtime, object, &linker));
	OK(skep_linker_program(linker, name));
	if (tenant)
		OK(skep_linker_tenant(linker, tenant));
	status = skep_linker_load(linker, module);
	skep_linker_free(linker);
	return status;
}

void limits(const char *path)
{
	skep_runtime_options options = { .size = sizeof(options), .flags = SKEP_INTERRUPTIBLE | SKEP_UNTRUSTED };
	skep_quota quota = { .size = sizeof(quota), .programs = 1 };
	skep_usage usage = { .size = sizeof(usage) };
	const skep_program *program;
	const skep_tenant *tenants[1];
	skep_program *limited, *hopeless;
	skep_packet *packet = new_packet();
	skep_tenant *tenant;
	skep_runtime *runtime, *plain;
	skep_object *object;
	skep_module *module, *second;
	skep_builder *builder;
	pthread_t other;
	uint32_t verdict;
	char *text;

	OK(skep_object_open(path, &object));
	options.flags = 8;
	CHECK(skep_runtime_new(&options, &runtime) == SKEP_E_ARGUMENT && says("flags"));
	options.flags = SKEP_INTERRUPTIBLE | SKEP_UNTRUSTED;
	options.clock_granularity_ns = 1000;
	OK(skep_runtime_new(&options, &runtime));
	OK(skep_tenant_new("customer", &quota, &tenant));
	OK(load_one(runtime, object, "spin", tenant, &module));
	CHECK(load_one(runtime, object, "spin", tenant, &second) == SKEP_E_QUOTA && says("customer"));
	OK(skep_tenant_usage(tenant, SKEP_PROGRAMS, &usage));
	CHECK(usage.used == 1 && usage.limit == 1 && usage.refused >= 1);
	CHECK(skep_tenant_usage(tenant, 4, &usage) == SKEP_E_ARGUMENT);
	OK(skep_tenant_set_limit(tenant, SKEP_PROGRAMS, 2));
	OK(load_one(runtime, object, "spin", tenant, &second));
	skep_module_free(second);
	tenants[0] = tenant;
	OK(skep_runtime_metrics(runtime, "r", tenants, 1, &text));
	CHECK(strstr(text, "tenant=\"customer\""));
	skep_text_free(text);
	skep_tenant_free(tenant);

	OK(skep_module_program(module, "spin", &program));
	OK(skep_program_with_budget(program, 1000, 0, &limited));
	CHECK(skep_program_run(limited, packet, &verdict) == SKEP_E_ENDED && says("budget"));
	OK(skep_program_with_budget(program, 0, 0, &hopeless));
	OK(skep_program_run(hopeless, packet, &verdict));
	skep_program_free(hopeless);
	skep_program_free(limited);

	/* The other thread runs until it is interrupted, so interrupt until it has ended. */
	CHECK(pthread_create(&other, NULL, spin, (void *)program) == 0);
	while (pthread_tryjoin_np(other, NULL) == EBUSY)
		OK(skep_program_interrupt(program));
	CHECK(pthread_create(&other, NULL, spin, (void *)program) == 0);
	while (pthread_tryjoin_np(other, NULL) == EBUSY)
		OK(skep_runtime_interrupt(runtime));
	skep_module_free(module);
	skep_runtime_free(runtime);

	options.flags = 0, options.budget_units = 50;
	OK(skep_runtime_new(&options, &runtime));
	OK(load_one(runtime, object, "spin", NULL, &module));
	OK(skep_module_program(module, "spin", &program));
	CHECK(skep_program_run(program, packet, &verdict) == SKEP_E_ENDED);
	skep_module_free(module);
	skep_runtime_free(runtime);

	OK(skep_runtime_new(NULL, &plain));
	OK(load_one(plain, object, "spin", NULL, &module));
	OK(skep_module_program(module, "spin", &program));
	CHECK(skep_program_interrupt(program) == SKEP_E_ARGUMENT && says("SKEP_INTERRUPTIBLE"));
	skep_module_free(module);
	CHECK(skep_module_load(plain, object, NULL, &module) != SKEP_OK);
	skep_runtime_free(plain);

	/* What the audit log does not keep is refused. */
	OK(skep_builder_new(&builder));
	OK(skep_builder_audit(builder, refuse_record, 1, NULL, NULL));
	OK(skep_builder_build(builder, NULL, &runtime));
	skep_builder_free(builder);
	CHECK(load_one(runtime, object, "spin", NULL, &module) == SKEP_E_DENIED);
	CHECK(skep_runtime_audit_failures(runtime) == 1);
	skep_runtime_free(runtime);
	skep_object_free(object);
	skep_packet_free(packet);
}

/* ---- Upgrades, JSON, refusals ---- */

void upgrade(const char *old_path, const char *new_path)
{
	const char *flow = "{\"key\": {\"source\": 1, \"port\": 2, \"protocol\": 6, \"local\": true},"
			   " \"value\": {\"score\": -3, \"name\": \"web\"}}";
	skep_object *old_object, *new_object;
	skep_module *old, *shared, *grown;
	const skep_map *map, *other;
	skep_linker *linker;
	skep_runtime *runtime;
	char *text;

	OK(skep_runtime_new(NULL, &runtime));
	OK(skep_object_open(old_path, &old_object));
	OK(skep_object_open(new_path, &new_object));
	OK(skep_module_load(runtime, old_object, NULL, &old));
	OK(skep_module_map_insert_json(old, "flows", flow));
	OK(skep_module_map_json(old, "flows", &text));
	CHECK(strstr(text, "\"score\":-3") && strstr(text, "\"port\":2"));
	skep_text_free(text);
	CHECK(skep_module_map_insert_json(old, "flows", "[1]") == SKEP_E_OBJECT && says("element 0"));
	CHECK(skep_module_map_insert_json(old, "flows", "{") == SKEP_E_OBJECT && says("JSON"));
	OK(skep_module_set_variable_json(old, "limit", "12"));
	OK(skep_module_variable_json(old, "limit", &text));
	CHECK(strcmp(text, "12") == 0);
	skep_text_free(text);
	CHECK(skep_module_set_variable_json(old, "limit", "\"many\"") == SKEP_E_OBJECT && says("limit"));
	CHECK(skep_module_variable_json(old, "nothing", &text) == SKEP_E_NOT_FOUND);

	OK(skep_module_map(old, "flows", &map));
	OK(skep_linker_new(runtime, old_object, &linker));
	OK(skep_linker_reuse_maps(linker, old));
	OK(skep_linker_load(linker, &shared));
	OK(skep_module_map(shared, "flows", &other));
	CHECK(map == other);
	skep_module_free(shared);
	OK(skep_linker_fresh_map(linker, "flows"));
	OK(skep_linker_load(linker, &shared));
	OK(skep_module_map(shared, "flows", &other));
	CHECK(map != other);
	skep_module_free(shared);
	skep_linker_free(linker);
	OK(skep_linker_new(runtime, old_object, &linker));
	OK(skep_linker_map(linker, "flows", map));
	OK(skep_linker_load(linker, &shared));
	OK(skep_module_map(shared, "flows", &other));
	CHECK(map == other);
	skep_module_free(shared);
	skep_linker_free(linker);

	OK(skep_module_load(runtime, new_object, NULL, &grown));
	OK(skep_module_migrate(grown, old, &text));
	CHECK(strstr(text, "copied map flows: 1 elements"));
	skep_text_free(text);
	OK(skep_module_migrate(grown, old, NULL));
	skep_module_free(old);
	skep_module_free(grown);
	skep_object_free(old_object);
	skep_object_free(new_object);
	skep_runtime_free(runtime);
}

void refusal(const char *path)
{
	skep_refusal why = { .size = sizeof(why) }, less = { .size = offsetof(skep_refusal, reason) };
	skep_step step = { .size = sizeof(step) };
	skep_runtime *runtime;
	skep_object *object;
	skep_linker *linker;
	skep_module *module;

	OK(skep_runtime_new(NULL, &runtime));
	OK(skep_object_open(path, &object));
	CHECK(skep_error_refusal(&why) == SKEP_E_NOT_FOUND);
	CHECK(skep_module_load(runtime, object, NULL, &module) == SKEP_E_REFUSED);
	OK(skep_error_refusal(&why));
	CHECK(strcmp(why.program, "careless") == 0 && strstr(why.file, "missing_null_check.bpf.c") && why.line > 0);
	CHECK(strcmp(why.code, "maybe-null") == 0);
	CHECK(why.text[0] && strstr(why.reason, "null") && why.source[0] && why.remedy && why.steps > 0);
	OK(skep_error_step(0, &step));
	CHECK(step.text[0] && step.state && step.file && step.source);
	CHECK(skep_error_step(why.steps, &step) == SKEP_E_NOT_FOUND);
	/* An older program's structure is shorter. */
	OK(skep_error_refusal(&less));
	CHECK(less.instruction == why.instruction && !less.reason && !less.steps);
	less.size = 0;
	CHECK(skep_error_refusal(&less) == SKEP_E_ARGUMENT);
	CHECK(skep_error_refusal(&why) == SKEP_E_NOT_FOUND);

	OK(skep_linker_new(runtime, object, &linker));
	CHECK(skep_linker_type(linker, "no_type") == SKEP_E_NOT_FOUND);
	OK(skep_linker_type(linker, "raw"));
	OK(skep_linker_buffer_len(linker, 8));
	CHECK(skep_linker_load(linker, &module) == SKEP_E_REFUSED);
	skep_linker_free(linker);
	skep_object_free(object);
	skep_runtime_free(runtime);
}

/* ---- A world ---- */

void worlds(const char *path)
{
	const char *toml = "clock = \"1s\"\n[[device]]\nname = \"eth0\"\nindex = 3\n[[device]]\nname = \"eth1\"\nindex = 4\n";
	const skep_program *program;
	skep_packet *packet = new_packet();
	skep_builder *builder;
	skep_runtime *runtime;
	skep_object *object;
	skep_module *module;
	skep_world *world, *wrong;
	skep_link *link;
	char *trace;

	CHECK(skep_world_parse("[[device]\n", &wrong) == SKEP_E_OBJECT && says("line"));
	OK(skep_world_parse(toml, &world));
	OK(skep_builder_new(&builder));
	OK(skep_builder_world(builder, world));
	OK(skep_builder_build(builder, NULL, &runtime));
	skep_builder_free(builder);
	OK(skep_object_open(path, &object));
	OK(load_one(runtime, object, "redirect", NULL, &module));
	OK(skep_module_program(module, "redirect", &program));
	OK(skep_world_attach(world, program, "eth0", SKEP_PLACE_XDP, &link));
	CHECK(skep_world_attach(world, program, "eth0", 3, &link) == SKEP_E_ARGUMENT);
	CHECK(skep_world_attach(world, program, "eth9", SKEP_PLACE_XDP, &link) == SKEP_E_ARGUMENT);
	OK(skep_world_inject(world, "eth0", packet, &trace));
	CHECK(strstr(trace, "redirect") && strstr(trace, "eth1"));
	skep_text_free(trace);
	OK(skep_world_inject(world, "eth0", packet, NULL));
	OK(skep_world_step(world, 5));
	skep_world_free(world);
	skep_module_free(module);
	skep_runtime_free(runtime);
	skep_link_free(link);
	skep_object_free(object);
	skep_packet_free(packet);
}

/* What a world's step calls must not step it. */
struct ticking {
	skep_world *world;
	int ticks;
};

static void step_again(void *context, const char *program, const char *message)
{
	struct ticking *ticking = context;

	(void)program;
	CHECK(strcmp(message, "tick") == 0);
	CHECK(skep_world_step(ticking->world, 1) == SKEP_E_BUSY && says("another step"));
	ticking->ticks++;
}

void steps(const char *path)
{
	struct ticking ticking = { NULL, 0 };
	skep_packet *packet = new_packet();
	skep_builder *builder;
	skep_runtime *runtime;
	skep_object *object;
	skep_module *module;
	skep_world *real;
	uint32_t verdict = 0;

	OK(skep_world_parse("[[device]]\nname = \"eth0\"\n", &real));
	CHECK(skep_world_step(real, 1) == SKEP_E_ARGUMENT && says("give the world a clock"));
	skep_world_free(real);
	OK(skep_world_parse("clock = \"1s\"\n", &ticking.world));
	OK(skep_builder_new(&builder));
	OK(skep_builder_world(builder, ticking.world));
	OK(skep_builder_log(builder, step_again, &ticking, NULL));
	OK(skep_builder_build(builder, NULL, &runtime));
	skep_builder_free(builder);
	OK(skep_object_open(path, &object));
	OK(skep_module_load(runtime, object, NULL, &module));
	OK(skep_program_run(skep_module_program_at(module, 0), packet, &verdict));
	CHECK(verdict == 2 && ticking.ticks == 0);
	OK(skep_world_step(ticking.world, 1000000));
	CHECK(ticking.ticks == 1);
	skep_module_free(module);
	skep_runtime_free(runtime);
	skep_object_free(object);
	skep_world_free(ticking.world);
	skep_packet_free(packet);
}

static int keep_result(void *context, const skep_program *program, uint64_t result)
{
	CHECK(program);
	*(uint64_t *)context = result;
	return 0;
}

void raw(const char *path)
{
	uint8_t buffer[4] = { 1, 2, 3, 4 };
	uint64_t result = 0;
	skep_runtime *runtime;
	skep_object *object;
	skep_linker *linker;
	skep_module *module;
	skep_hook *hook;
	skep_link *link;

	OK(skep_runtime_new(NULL, &runtime));
	OK(skep_object_open(path, &object));
	OK(skep_linker_new(runtime, object, &linker));
	OK(skep_linker_buffer_len(linker, sizeof(buffer)));
	OK(skep_linker_program(linker, "sum_bytes"));
	OK(skep_linker_load(linker, &module));
	OK(skep_hook_new(runtime, &hook));
	OK(skep_hook_attach(hook, skep_module_program_at(module, 0), &link));
	OK(skep_hook_run_raw(hook, buffer, sizeof(buffer), keep_result, &result));
	CHECK(result == 10 && buffer[3] == 10);
	CHECK(skep_hook_run_raw(hook, buffer, 3, keep_result, &result) == SKEP_E_ARGUMENT);
	skep_linker_free(linker);
	skep_module_free(module);
	skep_link_free(link);
	skep_hook_free(hook);
	skep_object_free(object);
	skep_runtime_free(runtime);
}
