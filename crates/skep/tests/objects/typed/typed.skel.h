/* Made by `skep gen skeleton --c typed.bpf.o`: do not edit. Needs skep's C library. */
#ifndef TYPED_SKEL_H
#define TYPED_SKEL_H

#include <skep.h>
#include <stdint.h>

/* struct direction: 16 bytes */
struct typed_direction {
	uint64_t packets;
	uint64_t bytes;
};

typedef char typed_direction_size[sizeof(struct typed_direction) == 16 ? 1 : -1];

/* struct flow_key: 8 bytes */
struct typed_flow_key {
	uint32_t source;
	uint16_t port;
	uint8_t protocol;
	uint8_t local;
};

typedef char typed_flow_key_size[sizeof(struct typed_flow_key) == 8 ? 1 : -1];

/* struct flow: 56 bytes */
struct typed_flow {
	struct typed_direction directions[2];
	uint32_t state;
	int32_t score;
	uint8_t name[8];
	uint8_t ttl;
	uint8_t bits_49[7];
};

typedef char typed_flow_size[sizeof(struct typed_flow) == 56 ? 1 : -1];

/* struct prefix: 8 bytes */
struct typed_prefix {
	uint32_t bits;
	uint8_t address[4];
};

typedef char typed_prefix_size[sizeof(struct typed_prefix) == 8 ? 1 : -1];

/* struct event: 8 bytes */
struct typed_event {
	uint32_t number;
	uint32_t length;
};

typedef char typed_event_size[sizeof(struct typed_event) == 8 ? 1 : -1];

/* struct settings: 16 bytes */
struct typed_settings {
	uint64_t rate;
	uint32_t burst;
	uint8_t enabled;
	uint8_t padding_13[3];
};

typedef char typed_settings_size[sizeof(struct typed_settings) == 16 ? 1 : -1];

/* enum state: any number is possible, since programs write it. */
#define typed_STATE_NEW 0ULL
#define typed_STATE_OPEN 1ULL
#define typed_STATE_CLOSED 7ULL

typedef uint32_t typed_totals_key;
typedef struct typed_direction typed_totals_value;
typedef struct typed_flow_key typed_flows_key;
typedef struct typed_flow typed_flows_value;
typedef struct typed_prefix typed_routes_key;
typedef uint32_t typed_routes_value;
typedef struct typed_event typed_jobs_value;

/* A loaded object: the pointers are valid until typed_free. */
struct typed {
	skep_module *module;
	struct {
		const skep_map *totals;
		const skep_map *flows;
		const skep_map *events;
		const skep_map *routes;
		const skep_map *jobs;
	} maps;
	struct {
		const skep_program *count;
		const skep_program *quiet;
		const skep_program *spin;
	} programs;
};

/* Frees it; the programs must not be running. */
static inline void typed_free(struct typed *skeleton)
{
	skep_module_free(skeleton->module);
	skeleton->module = NULL;
}

/* Loads all programs of an object; options may be NULL. Returns 0 or a negative status. */
static inline int typed_load(struct typed *skeleton, skep_runtime *runtime, const skep_object *object,
			      const skep_load_options *options)
{
	int status = skep_module_load(runtime, object, options, &skeleton->module);

	if (status != SKEP_OK)
		return status;
	status = skep_module_map(skeleton->module, "totals", &skeleton->maps.totals);
	if (status != SKEP_OK)
		goto failed;
	status = skep_module_map(skeleton->module, "flows", &skeleton->maps.flows);
	if (status != SKEP_OK)
		goto failed;
	status = skep_module_map(skeleton->module, "events", &skeleton->maps.events);
	if (status != SKEP_OK)
		goto failed;
	status = skep_module_map(skeleton->module, "routes", &skeleton->maps.routes);
	if (status != SKEP_OK)
		goto failed;
	status = skep_module_map(skeleton->module, "jobs", &skeleton->maps.jobs);
	if (status != SKEP_OK)
		goto failed;
	status = skep_module_program(skeleton->module, "count", &skeleton->programs.count);
	if (status != SKEP_OK)
		goto failed;
	status = skep_module_program(skeleton->module, "quiet", &skeleton->programs.quiet);
	if (status != SKEP_OK)
		goto failed;
	status = skep_module_program(skeleton->module, "spin", &skeleton->programs.spin);
	if (status != SKEP_OK)
		goto failed;
	return SKEP_OK;
failed:
	typed_free(skeleton);
	return status;
}

/* The variable scale. */
typedef uint32_t typed_scale_value;

static inline int typed_get_scale(const struct typed *skeleton, typed_scale_value *value)
{
	return skep_module_variable(skeleton->module, "scale", value, sizeof(*value));
}

/* The variable balance. */
typedef int64_t typed_balance_value;

static inline int typed_get_balance(const struct typed *skeleton, typed_balance_value *value)
{
	return skep_module_variable(skeleton->module, "balance", value, sizeof(*value));
}

static inline int typed_set_balance(const struct typed *skeleton, const typed_balance_value *value)
{
	return skep_module_set_variable(skeleton->module, "balance", value, sizeof(*value));
}

/* The variable settings. */
typedef struct typed_settings typed_settings_value;

static inline int typed_get_settings(const struct typed *skeleton, typed_settings_value *value)
{
	return skep_module_variable(skeleton->module, "settings", value, sizeof(*value));
}

static inline int typed_set_settings(const struct typed *skeleton, const typed_settings_value *value)
{
	return skep_module_set_variable(skeleton->module, "settings", value, sizeof(*value));
}

/* The variable seen. */
typedef uint64_t typed_seen_value;

static inline int typed_get_seen(const struct typed *skeleton, typed_seen_value *value)
{
	return skep_module_variable(skeleton->module, "seen", value, sizeof(*value));
}

static inline int typed_set_seen(const struct typed *skeleton, const typed_seen_value *value)
{
	return skep_module_set_variable(skeleton->module, "seen", value, sizeof(*value));
}

/* The variable limit. */
typedef uint32_t typed_limit_value;

static inline int typed_get_limit(const struct typed *skeleton, typed_limit_value *value)
{
	return skep_module_variable(skeleton->module, "limit", value, sizeof(*value));
}

static inline int typed_set_limit(const struct typed *skeleton, const typed_limit_value *value)
{
	return skep_module_set_variable(skeleton->module, "limit", value, sizeof(*value));
}

#endif
