/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * skep: an eBPF runtime for Linux user space.
 *
 *   object file -> skep_object -> skep_module_load -> skep_module -> skep_program, skep_map
 *                                      ^
 *                                 skep_runtime
 *
 * RETURN VALUES. Functions that return int return SKEP_OK (0), or a negative number of enum skep_status, the class of
 * the error; skep_error_message then has the details, with the place and a remedy. A function that fails leaves its
 * results unchanged, unless its comment says otherwise. A required argument that is NULL is SKEP_E_ARGUMENT and has no
 * other effect.
 *
 * OWNERSHIP. A handle from a function with `_new`, `_open`, `_parse` or `_load` in its name belongs to the caller,
 * who frees it once with the `_free` of its type; freeing NULL does nothing. Handles may be freed in any order:
 * the library keeps alive what other handles still need. A pointer to const that skep_module_program,
 * skep_module_map and the like return belongs to the module and is freed with it; skep_program_hold and
 * skep_map_hold give handles that do not depend on the module. The library keeps no pointer to the caller's memory
 * when a function returns, except to the context of a callback: it is freed once by the function given with it
 * (which may be NULL), on any thread, when nothing can call the callback any more, or before the function that
 * takes it returns if that fails.
 *
 * SIZES. Structures that may grow begin with their own size: set `size` to sizeof the structure, and the rest to 0
 * before use. A program that was compiled with an older header works with a newer library, and the other way
 * round: a newer option that is set is refused, a newer result is 0. Names are copied into the caller's buffer,
 * cut to its size with a final zero byte, and their whole length is returned, as by snprintf; the buffer may be
 * NULL with a size of 0. Texts that the library allocates are freed by skep_text_free.
 *
 * CALLBACKS may run on any thread that runs programs, several at once. They must return: no longjmp, no exceptions
 * of C++. They may call the library, except where it says otherwise.
 *
 * THREADS. Any number of threads may use the same runtime, object, module, program and map at once, except to free
 * it, which must be the last use. A packet, like any buffer, is used by one thread at a time. A thread that has run a
 * program keeps one of the runtime's virtual CPUs until it ends, or calls skep_runtime_release_cpu. Three quarters of
 * the virtual CPUs can be kept; threads that find none share the others, and wait for one where all are in use.
 *
 * Not for signal handlers. A child process made by fork() may only call exec. The library must stay loaded as long as
 * there are handles, and threads that have run programs. Failure to allocate memory for the library's own data aborts
 * the process, as is usual in Rust.
 */
#ifndef SKEP_H
#define SKEP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header; skep_version returns the library's. */
#define SKEP_VERSION "0.1.0"

/* Results of functions. Numbers never change their meaning; new ones may be added. */
enum skep_status {
	SKEP_OK = 0,
	SKEP_E_ARGUMENT = -1,    /* an argument is NULL, has the wrong size, is not UTF-8, or is not accepted by the callee */
	SKEP_E_READ = -2,        /* a file could not be read */
	SKEP_E_OBJECT = -3,      /* the bytes are not a BPF object, the object contradicts itself, or a map that the host gives
	                            does not fit */
	SKEP_E_REFUSED = -4,     /* the verifier refused a program; the message names instruction, line and reason */
	SKEP_E_UNSUPPORTED = -5, /* the object needs something that this library does not provide */
	SKEP_E_NOT_FOUND = -6,   /* no such program, map or key, or no further key */
	SKEP_E_EXISTS = -7,      /* the key already exists */
	SKEP_E_FULL = -8,        /* the map already holds its maximum number of elements */
	SKEP_E_MEMORY = -9,      /* more memory is needed than a limit allows or the system provides, executable or not */
	SKEP_E_BUSY = -10,       /* no free virtual CPU, an ending thread, another consumer, a step in progress, or a signal
	                            handler that needs its thread's lock */
	SKEP_E_DENIED = -11,     /* the map is frozen, its kind does not allow the change, or the variable is a constant */
	SKEP_E_COMPILE = -12,    /* the compiler failed on a verified program */
	SKEP_E_INTERNAL = -13,   /* a defect of the library; the arguments of the call may only be freed afterwards */
	SKEP_E_ENDED = -14,      /* a run ended early: it used up its budget, or was interrupted */
	SKEP_E_QUOTA = -15       /* a tenant's quota is used up */
};

/* Flags of skep_map_update, with Linux's names and numbers. */
enum skep_update {
	SKEP_ANY = 0,     /* create or change the element */
	SKEP_NOEXIST = 1, /* create it; SKEP_E_EXISTS if it exists */
	SKEP_EXIST = 2,   /* change it; SKEP_E_NOT_FOUND if it does not exist */
	SKEP_LOCK = 4     /* combined with one of these by |: in place, under the lock in the value */
};

/* Hardening, against an attacker who exploits another bug in the process. It costs a little time, and has no effect
 * if the processor or the system does not check. */
enum {
	SKEP_LANDING_PADS = 1,  /* programs begin with an instruction for indirect branches: BTI, ENDBR64 */
	SKEP_SIGNED_RETURNS = 2 /* aarch64: saved return addresses are signed, and checked before they are used */
};

/* Flags of a runtime. */
enum skep_runtime_flags {
	SKEP_UNTRUSTED = 1,    /* programs may be hostile: constants hidden, speculation masked, no addresses as numbers,
	                          coarse clocks, code memory that is never mapped writable */
	SKEP_PRIVILEGED = 2,   /* programs may learn addresses of the host, as root's in Linux; never with untrusted authors */
	SKEP_INTERRUPTIBLE = 4 /* runs can be interrupted and have budgets, also without a default budget */
};

typedef struct skep_runtime skep_runtime; /* code memory, virtual CPUs, limits: shared by all modules loaded into it */
typedef struct skep_object skep_object;   /* a parsed object file; its content is untrusted */
typedef struct skep_module skep_module;   /* a loaded object: its maps and its verified, compiled programs */
typedef struct skep_program skep_program; /* a program of a module */
typedef struct skep_map skep_map;         /* a map of a module */
typedef struct skep_ringbuf skep_ringbuf; /* the consumer of a map's records */
typedef struct skep_packet skep_packet;   /* bytes with room to grow on both sides, and their metadata */
typedef struct skep_builder skep_builder; /* a runtime in preparation */
typedef struct skep_linker skep_linker;   /* a load in preparation */
typedef struct skep_type skep_type;       /* a program type of the host's own */
typedef struct skep_call skep_call;       /* a call of a helper in progress */
typedef struct skep_context skep_context; /* what a program runs on that is about something else than packets */
typedef struct skep_hook skep_hook;       /* a place in the host where programs are attached */
typedef struct skep_link skep_link;       /* an attachment of a program */
typedef struct skep_program_array skep_program_array; /* a module's array of programs, the targets of tail calls */
typedef struct skep_outer_map skep_outer_map;         /* a module's array or hash table of maps */
typedef struct skep_cursor skep_cursor;               /* the position of a walk in batches */
typedef struct skep_user_ringbuf skep_user_ringbuf;   /* the producer of a user ring buffer */
typedef struct skep_tenant skep_tenant;               /* on whose behalf things are loaded, and what that may take */
typedef struct skep_world skep_world;                 /* a machine as programs see it */

/* Frees the context of a callback. */
typedef void (*skep_free_fn)(void *context);

/* Settings of a runtime. Set `size` to sizeof(skep_runtime_options). 0 means the default in every other field:
 * { .size = sizeof(skep_runtime_options), .cpus = 8 }. */
typedef struct skep_runtime_options {
	size_t size;
	/* Virtual CPUs: the number of threads that can run programs at once, and of values in an element of a
	 * per-CPU map. Default: 64, or twice the number of processors if that is more. */
	uint64_t cpus;
	/* Maximum size of one map in bytes. Default: 4 GiB. */
	uint64_t map_memory;
	/* Maximum executable memory in bytes, in packs of 2 MiB. Default: the size of the address range. */
	uint64_t code_memory;
	/* Hardening of the generated code: a sum of SKEP_LANDING_PADS and SKEP_SIGNED_RETURNS. Default: none. */
	uint64_t hardening;
	/* The most instructions that the verifier walks for one program. Default: 1,000,000. */
	uint64_t max_walked;
	/* The most that a run may take: units of work (about instructions), nanoseconds, or both. A run that takes
	 * more ends with SKEP_E_ENDED, and all that it holds is released. Default: no limit. */
	uint64_t budget_units;
	uint64_t budget_ns;
	/* Times that programs see are multiples of this many nanoseconds. Default: as they are. */
	uint64_t clock_granularity_ns;
	/* A sum of enum skep_runtime_flags. */
	uint64_t flags;
} skep_runtime_options;

/* Options of a load, used like skep_runtime_options. */
typedef struct skep_load_options {
	size_t size;
	/* The only program to load. Default: all. */
	const char *program;
	/* For programs of type `raw`: the length of their buffer in bytes. They are verified for this
	 * length and run on no other. Default: 0. */
	uint64_t buffer_len;
} skep_load_options;

/* The library's version, such as "0.1.0". The string is static. Any thread, any time. */
const char *skep_version(void);

/* The message of the calling thread's last failed call; "" if none has failed. Calls that succeed do not change it.
 * The string belongs to the library and is valid until the next call of the same thread fails, or the thread ends. */
const char *skep_error_message(void);

/* Creates a runtime. `options` may be NULL and is not kept. The caller frees `*runtime` with
 * skep_runtime_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_MEMORY. */
int skep_runtime_new(const skep_runtime_options *options, skep_runtime **runtime);

/* Releases the virtual CPU that the calling thread keeps, if it has one, which it otherwise does from its first run
 * until it ends. Call it in threads that will be idle for long; the next run takes a virtual CPU again. Returns 1, or
 * 0 if the thread has none or `runtime` is NULL. Any thread, for itself. */
int skep_runtime_release_cpu(const skep_runtime *runtime);

/* Frees a runtime. Modules loaded into it stay usable. NULL does nothing. Any thread; the last use of the handle. */
void skep_runtime_free(skep_runtime *runtime);

/* Reads and parses the object file at `path`, which is not kept. The caller frees `*object` with
 * skep_object_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_READ, SKEP_E_OBJECT. */
int skep_object_open(const char *path, skep_object **object);

/* Parses the `len` bytes of an object file at `data`, which may be freed afterwards. The caller frees
 * `*object` with skep_object_free. Any thread. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_OBJECT. */
int skep_object_parse(const void *data, size_t len, skep_object **object);

/* Frees an object. Modules made from it stay usable. NULL does nothing. Any thread; the last use of the handle. */
void skep_object_free(skep_object *object);

/* Creates the object's maps, verifies and compiles its programs; if one step fails, nothing stays loaded.
 * `options` may be NULL and is not kept. The caller frees `*module` with skep_module_free. An object can be loaded
 * any number of times, each time with its own maps. Any threads, also with the same
 * runtime and object. Fails with any number but SKEP_E_READ and SKEP_E_BUSY; with SKEP_E_REFUSED if a program is
 * not safe. */
int skep_module_load(const skep_runtime *runtime, const skep_object *object, const skep_load_options *options,
		     skep_module **module);

/* Finds a program by the name of its function in C. `*program` belongs to the module and is valid until that is
 * freed. `name` is not kept. Any threads. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_program(const skep_module *module, const char *name, const skep_program **program);

/* Finds a map by its name in C. `*map` belongs to the module and is valid until that is freed. `name` is not kept.
 * Any threads. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_map(const skep_module *module, const char *name, const skep_map **map);

/* Copies the bytes of a global variable to `value`; `size` must be the variable's. Aligned pieces of 8, 4, 2 and 1
 * bytes are each from one moment. Any threads, while programs run. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_variable(const skep_module *module, const char *name, void *value, size_t size);

/* Sets a global variable and no other byte; `size` must be the variable's. Aligned pieces of 8, 4, 2 and 1 bytes
 * change at once. Any threads, while programs run. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND, and with
 * SKEP_E_DENIED for constants, for whose values the programs were verified. */
int skep_module_set_variable(const skep_module *module, const char *name, const void *value, size_t size);

/* Frees a module with its programs and maps. NULL does nothing. Any thread; the last use of the module, of its
 * programs and of its maps: no thread may be running one. */
void skep_module_free(skep_module *module);

/* Creates a packet with a copy of the `len` bytes at `data`: a frame, beginning with its link-layer header. The
 * caller frees `*packet` with skep_packet_free; it can be reused for any number of frames. Any thread. Fails with
 * SKEP_E_ARGUMENT. */
int skep_packet_new(const void *data, size_t len, skep_packet **packet);

/* Replaces the packet's bytes by a copy of others and restores the room on both sides. The new bytes may be part of
 * the packet itself. One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_packet_set(skep_packet *packet, const void *data, size_t len);

/* Returns the packet's bytes as the last program left them, and stores their number in `*len` unless `len` is NULL.
 * They belong to the packet and are valid until its next skep_packet_set, skep_program_run or skep_packet_free. For a
 * NULL packet: NULL and 0. Any threads, while none changes the packet. */
const uint8_t *skep_packet_bytes(const skep_packet *packet, size_t *len);

/* Frees a packet. NULL does nothing. Any thread; the last use of the handle. */
void skep_packet_free(skep_packet *packet);

/* Runs the program on the packet, which it may change. `*verdict` is its result: XDP_PASS, TC_ACT_OK or another
 * value of <linux/bpf.h> and <linux/pkt_cls.h>. Output of bpf_printk goes to standard error. Ownership does not
 * change. Any threads, each with its own packet. Fails with SKEP_E_ARGUMENT (also for programs that
 * take a buffer), SKEP_E_BUSY. */
int skep_program_run(const skep_program *program, skep_packet *packet, uint32_t *verdict);

/* Runs a program of type `raw` on the `len` initialised bytes at `buffer`, which it may change;
 * `result` must not overlap them. `len` must equal skep_load_options.buffer_len. Any threads, each with its own
 * buffer. Fails with SKEP_E_ARGUMENT (also for programs that take a packet), SKEP_E_BUSY. */
int skep_program_run_raw(const skep_program *program, void *buffer, size_t len, uint64_t *result);

/* Size of a key of the map in bytes; 0 for NULL. Any threads. */
size_t skep_map_key_size(const skep_map *map);

/* Size of a value of the map in bytes, as the host reads and writes it: for per-CPU kinds the values of all virtual
 * CPUs in order, each padded with zeroes to a multiple of 8. 0 for NULL. Any threads. */
size_t skep_map_value_size(const skep_map *map);

/* Copies the value of a key to `value`; in a trie, the value of the longest matching prefix. `key_size` and
 * `value_size` must be the map's, and the two must not overlap. Any threads, while programs run. Fails with
 * SKEP_E_ARGUMENT, and with SKEP_E_NOT_FOUND if there is no such key; the bytes at `value` are then unspecified. */
int skep_map_lookup(const skep_map *map, const void *key, size_t key_size, void *value, size_t value_size);

/* Sets the value of a key to a copy of `value`, according to `flags` (enum skep_update); for per-CPU kinds,
 * of all virtual CPUs. `key_size` and `value_size` must be the map's. Any threads, while programs run.
 * Fails with SKEP_E_ARGUMENT, SKEP_E_EXISTS, SKEP_E_NOT_FOUND, SKEP_E_FULL, SKEP_E_MEMORY, SKEP_E_DENIED. */
int skep_map_update(const skep_map *map, const void *key, size_t key_size, const void *value, size_t value_size,
		    uint64_t flags);

/* Removes a key. `key_size` must be the map's. Any threads, while programs run. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_NOT_FOUND, SKEP_E_DENIED (arrays and frozen maps). */
int skep_map_delete(const skep_map *map, const void *key, size_t key_size);

/* Copies the key that follows `key` in the map's own order to `next`; the first one if `key` is NULL or not in the
 * map (any more), so a walk over a map that other threads change may start over. `key_size` must be the map's;
 * `key` and `next` may be the same place. Any threads, while programs run. Fails with SKEP_E_ARGUMENT, and with
 * SKEP_E_NOT_FOUND at the end. */
int skep_map_next_key(const skep_map *map, const void *key, void *next, size_t key_size);

/* Receives a record: the `context` given to skep_ringbuf_poll, the virtual CPU (0 for ring buffers), and `size`
 * bytes at a multiple of 8, valid during the call. 0 goes on to the next record; any other result ends
 * skep_ringbuf_poll. It may call the library, except for this skep_ringbuf, and must return. */
typedef int (*skep_record_fn)(void *context, uint32_t cpu, const void *record, size_t size);

/* Becomes the only consumer of a ring buffer, or of an array of perf events; of the latter with room for `perf_bytes`
 * bytes of each virtual CPU. The map stays as long as its consumer. The caller frees `*ringbuf` with
 * skep_ringbuf_free. Any thread. Fails with SKEP_E_ARGUMENT (also for other kinds), SKEP_E_BUSY (there is a consumer,
 * or no descriptor), SKEP_E_MEMORY. */
int skep_ringbuf_new(const skep_map *map, size_t perf_bytes, skep_ringbuf **ringbuf);

/* Returns a descriptor for poll(2) and epoll(7), by level or edge, that is readable when there are records. Then call
 * skep_ringbuf_poll with a timeout of 0, until it returns 0. It belongs to the library: do not read, write or close
 * it. -1 for NULL. Any thread. */
int skep_ringbuf_fd(const skep_ringbuf *ringbuf);

/* Waits until there is a record, at most `timeout_ms` milliseconds (negative: without a limit), and calls `callback`
 * with each record that is there, in order. Returns how many it was, 0 after the timeout. One thread at a time. Fails
 * with SKEP_E_ARGUMENT. */
int skep_ringbuf_poll(skep_ringbuf *ringbuf, int timeout_ms, skep_record_fn callback, void *context);

/* Returns how many samples of perf events found no room since the last call; 0 for ring buffers and for NULL. One
 * thread at a time. */
uint64_t skep_ringbuf_lost(skep_ringbuf *ringbuf);

/* Ends the consumption. NULL does nothing. Any thread; the last use of the handle. */
void skep_ringbuf_free(skep_ringbuf *ringbuf);

/* ---- Errors as data ---- */

/* Why the verifier refused a program. The texts belong to the thread, like skep_error_message; "" where nothing is
 * known. */
typedef struct skep_refusal {
	size_t size;
	const char *program;
	const char *code;     /* the class of the refusal, such as "maybe-null" */
	uint64_t instruction; /* its number in the program, in slots of 8 bytes */
	const char *text;     /* the instruction in assembler */
	const char *reason;   /* what was expected, and what was found */
	const char *remedy;   /* what to change */
	const char *file;     /* the source file */
	uint64_t line;        /* the line in it, from 1; 0 if not known */
	const char *source;   /* that line's text */
	uint64_t steps;       /* how many steps lead there, for skep_error_step */
} skep_refusal;

/* An instruction on the way to a refusal. */
typedef struct skep_step {
	size_t size;
	uint64_t instruction;
	const char *text;  /* the instruction, and for branches the way taken */
	const char *state; /* the value that it made */
	const char *file;
	uint64_t line;
	const char *source;
} skep_step;

/* Describes the refusal, if the calling thread's last failure was SKEP_E_REFUSED. The texts are valid as long as that
 * failure's message. Fails with SKEP_E_NOT_FOUND if it was another failure, which then stays the last one, and with
 * SKEP_E_ARGUMENT. */
int skep_error_refusal(skep_refusal *refusal);

/* Describes a step of that refusal, 0 being the oldest. Fails like skep_error_refusal, with SKEP_E_NOT_FOUND also
 * behind the last step. */
int skep_error_step(size_t index, skep_step *step);

/* Frees a text of the library. NULL does nothing. Any thread. */
void skep_text_free(char *text);

/* ---- Runtimes with helpers, types and a log ---- */

/* What a helper takes: each entry is an argument of the program's call. */
enum skep_param_kind {
	SKEP_PARAM_NONE = 0,                /* the end of the list */
	SKEP_PARAM_NUMBER = 1,              /* `number` has it */
	SKEP_PARAM_MEMORY = 2,              /* `data`: that many `bytes` of the program's memory, a copy */
	SKEP_PARAM_MEMORY_OUT = 3,          /* the same, zeroes at first, copied to the program afterwards */
	SKEP_PARAM_MEMORY_INOUT = 4,        /* the same, copied both ways */
	SKEP_PARAM_BYTES = 5,               /* two arguments, memory and its size: `data` and `size`, a copy */
	SKEP_PARAM_BYTES_INOUT = 6,         /* the same, copied both ways */
	SKEP_PARAM_BYTES_OR_NULL = 7,       /* SKEP_PARAM_BYTES, or null and 0: `data` is NULL then */
	SKEP_PARAM_BYTES_INOUT_OR_NULL = 8, /* SKEP_PARAM_BYTES_INOUT, or null and 0 */
	SKEP_PARAM_MAP = 9,                 /* `data` is a const skep_map *, valid during the call */
	SKEP_PARAM_PACKET = 10,             /* the program's context: skep_call_packet_read reads its packet */
	SKEP_PARAM_CALLBACK = 11            /* two arguments, a function and its context: skep_call_back calls it */
};

typedef struct skep_param {
	uint32_t kind;  /* enum skep_param_kind */
	uint32_t bytes; /* of SKEP_PARAM_MEMORY and the like: at least 1, at most 1 MiB */
} skep_param;

/* What a helper returns. The verifier knows the range; a result beyond it is cut to its size. */
enum skep_result {
	SKEP_RESULT_NOTHING = 0, /* programs cannot read it */
	SKEP_RESULT_ERRNO = 1,   /* 0 to UINT32_MAX, or a negated error number: -ENOENT. Others become -ERANGE */
	SKEP_RESULT_BOOL = 2,
	SKEP_RESULT_U8 = 3,
	SKEP_RESULT_U16 = 4,
	SKEP_RESULT_U32 = 5,
	SKEP_RESULT_U64 = 6,
	SKEP_RESULT_I8 = 7,
	SKEP_RESULT_I16 = 8,
	SKEP_RESULT_I32 = 9,
	SKEP_RESULT_I64 = 10
};

/* An argument of a call. */
typedef struct skep_value {
	uint64_t number;
	void *data;
	size_t size;
} skep_value;

/* A helper's function. It gets the helper's context, the call, and an argument for each parameter; of methods the
 * first argument's `data` is the host's structure. All of it is valid during the call. */
typedef int64_t (*skep_helper_fn)(void *context, skep_call *call, const skep_value *args);

/* A function that programs call. */
typedef struct skep_helper {
	size_t size;
	const char *name;     /* as in the declaration that programs are compiled with */
	uint32_t id;          /* the number that programs call; 1000 and more are no numbers of Linux. 0 for methods */
	uint32_t result;      /* enum skep_result */
	skep_param params[5]; /* up to five registers in all; SKEP_PARAM_NONE ends the list */
	skep_helper_fn call;
	void *context;
	skep_free_fn free_context; /* may be NULL */
} skep_helper;

/* Receives a message of bpf_printk: the program's name, and the text without its line end. */
typedef void (*skep_log_fn)(void *context, const char *program, const char *message);

/* Receives a record of a load, attachment, replacement or detachment, as a line of JSON. Returns 0 if it has kept
 * it. Must not use the runtime. */
typedef int (*skep_audit_fn)(void *context, const char *record);

/* Begins a runtime. The caller frees `*builder` with skep_builder_free. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_builder_new(skep_builder **builder);

/* Adds a helper, which is copied. One thread at a time. Fails with SKEP_E_ARGUMENT; skep_builder_build reports
 * numbers that are taken. */
int skep_builder_helper(skep_builder *builder, const skep_helper *helper);

/* Adds a function for programs of `type` alone, which declare it as a `__ksym` and pass their context first. It has
 * one parameter more than `params` says: that context. No SKEP_PARAM_CALLBACK. One thread at a time. Fails with
 * SKEP_E_ARGUMENT. */
int skep_builder_method(skep_builder *builder, const skep_type *type, const skep_helper *helper);

/* Lets programs of a type of the host's own be loaded. One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_builder_type(skep_builder *builder, const skep_type *type);

/* Passes messages of programs to `log` instead of standard error. One thread at a time. Fails with
 * SKEP_E_ARGUMENT. */
int skep_builder_log(skep_builder *builder, skep_log_fn log, void *context, skep_free_fn free_context);

/* Passes records to `audit`. If `must_keep` is not 0, what is not kept is refused with SKEP_E_DENIED; otherwise it is
 * counted (skep_runtime_audit_failures). One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_builder_audit(skep_builder *builder, skep_audit_fn audit, int must_keep, void *context,
		       skep_free_fn free_context);

/* Shows programs this world instead of the machine. One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_builder_world(skep_builder *builder, const skep_world *world);

/* Makes the runtime. `options` may be NULL and is not kept. The caller frees `*runtime` with skep_runtime_free. The
 * builder has nothing left then and can only be freed. One thread at a time. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_MEMORY. */
int skep_builder_build(skep_builder *builder, const skep_runtime_options *options, skep_runtime **runtime);

/* Frees a builder; its runtime stays usable. NULL does nothing. */
void skep_builder_free(skep_builder *builder);

/* The name of the program that the host runs. Only during the call. */
size_t skep_call_program(const skep_call *call, char *buffer, size_t size);

/* The virtual CPU of the run; 0 for NULL. Only during the call. */
uint32_t skep_call_cpu(const skep_call *call);

/* The state that the host gave to the run (skep_program_run_with, skep_program_run_typed), or NULL. Only during the
 * call. */
void *skep_call_state(const skep_call *call);

/* Bytes of the packet of a SKEP_PARAM_PACKET: 0 without one. Only during the call. */
size_t skep_call_packet_size(const skep_call *call);

/* Copies `size` bytes of that packet from `offset` on to `to`. Only during the call. Fails with SKEP_E_ARGUMENT,
 * also if the packet has fewer. */
int skep_call_packet_read(const skep_call *call, size_t offset, void *to, size_t size);

/* Calls the program's function of a SKEP_PARAM_CALLBACK with `value`, and stores its result in `*result` unless
 * that is NULL. Only during the call, on its thread, and not from within another skep_call_back of the same call. Fails
 * with SKEP_E_ARGUMENT, and with SKEP_E_ENDED if the run
 * is over: the helper should return then. */
int skep_call_back(skep_call *call, uint64_t value, int32_t *result);

/* A header with the declarations of the runtime's helpers, for programs in C. The caller frees `*text` with
 * skep_text_free. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_runtime_header(const skep_runtime *runtime, char **text);

/* How many virtual CPUs there are: values in an element of a per-CPU map. 0 for NULL. Any thread. */
uint32_t skep_runtime_cpus(const skep_runtime *runtime);

/* How many audit records were not kept; 0 for NULL. Any thread. */
uint64_t skep_runtime_audit_failures(const skep_runtime *runtime);

/* ---- Program types of the host's own ---- */

/* A field that programs see, and where it is in the host's structure. */
enum skep_field_kind {
	SKEP_FIELD_NUMBER = 0, /* a number of 1, 2, 4 or 8 `bytes`, or an array of `count` of them */
	SKEP_FIELD_SLICE = 1,  /* the host's is a skep_bytes; programs see two pointers, `NAME` and `NAME_end` */
	SKEP_FIELD_BYTES = 2,  /* the host's is a pointer to that many `bytes` */
	SKEP_FIELD_STRUCT = 3  /* the host's is a pointer to a structure, which `of` describes */
};

/* Flags of a field, added up. */
enum skep_field_flags {
	SKEP_FIELD_SIGNED = 1,   /* C declares the number signed */
	SKEP_FIELD_WRITABLE = 2, /* programs may write it, or what it points to */
	SKEP_FIELD_NULLABLE = 4  /* the pointer may be NULL */
};

/* A slice in the host's structure. `data` may be NULL if `size` is 0. */
typedef struct skep_bytes {
	void *data;
	size_t size;
} skep_bytes;

typedef struct skep_field {
	const char *name;
	uint32_t kind;  /* enum skep_field_kind */
	uint32_t bytes; /* of SKEP_FIELD_NUMBER and SKEP_FIELD_BYTES */
	uint32_t count; /* of an array of numbers; 0 for one number */
	uint32_t flags; /* enum skep_field_flags */
	size_t offset;  /* offsetof(the host's structure, the field) */
	const struct skep_struct *of;
} skep_field;

typedef struct skep_struct {
	const char *name; /* in C, for programs */
	const skep_field *fields;
	size_t count;
} skep_struct;

/* A result that programs may return. The verifier proves that a result is from the least to the greatest. */
typedef struct skep_verdict {
	const char *name;
	int64_t number; /* of 32 bits */
} skep_verdict;

typedef struct skep_type_options {
	size_t size;
	const char *section; /* programs are in SEC("section") or SEC("section/anything") */
	const skep_struct *context;
	const char *verdict_name; /* of the enum in C; may be NULL */
	const skep_verdict *verdicts; /* NULL: any 32-bit number */
	size_t verdict_count;
} skep_type_options;

/* Makes a program type. All of `options` is copied. A type lives as long as the process, so make each once; `*type`
 * is a handle, freed with skep_type_free. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_type_new(const skep_type_options *options, skep_type **type);

/* The C header for authors of programs. The caller frees `*text` with skep_text_free. Any thread. Fails with
 * SKEP_E_ARGUMENT. */
int skep_type_header(const skep_type *type, char **text);

/* The name of a verdict; "" if the type has none of this number. Any thread. */
size_t skep_type_verdict(const skep_type *type, int32_t verdict, char *buffer, size_t size);

/* Frees a handle of a type; runtimes keep it. NULL does nothing. */
void skep_type_free(skep_type *type);

/* Runs a program over the host's structure at `value`. Numbers are copied to the program and, if it may write them,
 * back; bytes are lent in place, so nothing else may use them during the run, and helpers must not free them. Pointers
 * in the structure are read once, at the start: methods may change them, for the next run, but what they led to must
 * stay until this one ends.
 * `state` is for skep_call_state and may be NULL. Any threads, each with its own structure. Fails with
 * SKEP_E_ARGUMENT (also for programs of another type), SKEP_E_BUSY, SKEP_E_ENDED. */
int skep_program_run_typed(const skep_program *program, const skep_type *type, void *value, void *state,
			   int32_t *verdict);

/* ---- Loads with choices ---- */

/* Receives a line of the verifier's log, in the syntax of Linux's verifier. It must not use this skep_linker. */
typedef void (*skep_line_fn)(void *context, const char *line);

/* Prepares a load. Runtime and object may be freed afterwards. The caller frees `*linker` with skep_linker_free. A
 * linker is used by one thread at a time. Names that the object lacks are reported by skep_linker_load. Fails with
 * SKEP_E_ARGUMENT. */
int skep_linker_new(const skep_runtime *runtime, const skep_object *object, skep_linker **linker);

/* Loads this program and the others for which this was called, instead of all. Fails with SKEP_E_ARGUMENT. */
int skep_linker_program(skep_linker *linker, const char *program);

/* Sets the type of all programs, such as "xdp" or "raw", whatever their sections say. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_NOT_FOUND. */
int skep_linker_type(skep_linker *linker, const char *type);

/* For programs of type `raw`: the length of their buffer in bytes. Fails with SKEP_E_ARGUMENT. */
int skep_linker_buffer_len(skep_linker *linker, uint32_t bytes);

/* Lets programs sleep whose type may. Fails with SKEP_E_ARGUMENT. */
int skep_linker_sleepable(skep_linker *linker, int sleepable);

/* Uses an existing map instead of the object's map of that name. Fails with SKEP_E_ARGUMENT. */
int skep_linker_map(skep_linker *linker, const char *name, const skep_map *map);

/* Takes over the maps of an older module that have the names of the object's, except for maps of variables and of
 * programs. Fails with SKEP_E_ARGUMENT. */
int skep_linker_reuse_maps(skep_linker *linker, const skep_module *old);

/* Creates the map anew, whatever skep_linker_reuse_maps would take; skep_module_migrate copies its elements. Fails
 * with SKEP_E_ARGUMENT. */
int skep_linker_fresh_map(skep_linker *linker, const char *map);

/* Creates the map with another capacity. Fails with SKEP_E_ARGUMENT. */
int skep_linker_max_entries(skep_linker *linker, const char *map, uint32_t entries);

/* Sets a global variable before the load, constants included: programs are verified for the value. Fails with
 * SKEP_E_ARGUMENT. */
int skep_linker_variable(skep_linker *linker, const char *variable, const void *value, size_t size);

/* Charges what the load creates to a tenant. Fails with SKEP_E_ARGUMENT. */
int skep_linker_tenant(skep_linker *linker, const skep_tenant *tenant);

/* Passes the verifier's log to `line` during skep_linker_load. Fails with SKEP_E_ARGUMENT. */
int skep_linker_log(skep_linker *linker, skep_line_fn line, void *context, skep_free_fn free_context);

/* Loads, as skep_module_load does. The linker stays, and can load again. Fails with any number but SKEP_E_READ and
 * SKEP_E_BUSY. */
int skep_linker_load(skep_linker *linker, skep_module **module);

/* Frees a linker. NULL does nothing. */
void skep_linker_free(skep_linker *linker);

/* ---- What objects and modules have ---- */

/* How many programs an object has; 0 for NULL. Any thread. */
size_t skep_object_program_count(const skep_object *object);

/* The name of the program of that index, in the file's order. Returns 0 behind the last. Any thread. */
size_t skep_object_program_at(const skep_object *object, size_t index, char *buffer, size_t size);

/* How many programs a module has; 0 for NULL. Any thread. */
size_t skep_module_program_count(const skep_module *module);

/* The program of that index, or NULL. It belongs to the module. Any thread. */
const skep_program *skep_module_program_at(const skep_module *module, size_t index);

/* How many maps a module has; 0 for NULL. Any thread. */
size_t skep_module_map_count(const skep_module *module);

/* The map of that index, or NULL. It belongs to the module. Any thread. */
const skep_map *skep_module_map_at(const skep_module *module, size_t index);

typedef struct skep_variable {
	size_t size;
	uint64_t bytes;     /* of the variable */
	uint64_t read_only; /* 1 for constants */
} skep_variable;

/* How many global variables a module has; 0 for NULL. Any thread. */
size_t skep_module_variable_count(const skep_module *module);

/* The name of the variable of that index, cut to `size` bytes; `info` may be NULL. Any thread. Fails with
 * SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_variable_at(const skep_module *module, size_t index, char *buffer, size_t size, skep_variable *info);

/* Copies the state of an older module: elements of maps that are not the same maps, and variables that programs may
 * write. Structures may have grown. `report` may be NULL; otherwise the caller frees `*report` with skep_text_free:
 * a line for each map and variable. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_FULL; what was copied stays
 * copied. */
int skep_module_migrate(const skep_module *module, const skep_module *old, char **report);

/* Gives the caller a handle of a program that does not depend on its module, freed with skep_program_free. Any
 * thread. Fails with SKEP_E_ARGUMENT. */
int skep_program_hold(const skep_program *program, skep_program **held);

/* Frees a handle of a program that the caller was given; never a module's own. NULL does nothing. */
void skep_program_free(skep_program *program);

/* A program's name, and that of its type. Any thread. */
size_t skep_program_name(const skep_program *program, char *buffer, size_t size);
size_t skep_program_type(const skep_program *program, char *buffer, size_t size);

/* Gives the caller a handle of a map that does not depend on its module, freed with skep_map_free. Any thread.
 * Fails with SKEP_E_ARGUMENT. */
int skep_map_hold(const skep_map *map, skep_map **held);

/* Frees a handle of a map that the caller was given; never a module's own. NULL does nothing. */
void skep_map_free(skep_map *map);

/* ---- Runs ---- */

/* As skep_program_run, with a state for the helpers that the program calls (skep_call_state). Any threads, each
 * with its own packet. Fails like skep_program_run, and with SKEP_E_ENDED. */
int skep_program_run_with(const skep_program *program, skep_packet *packet, void *state, uint32_t *verdict);

/* Where a program sends a packet, and what `target` is then. */
enum skep_redirect {
	SKEP_REDIRECT_NONE = 0,
	SKEP_REDIRECT_DEVICE = 1,    /* an interface's index */
	SKEP_REDIRECT_PEER = 2,      /* that of one of a pair; the packet comes in at the other */
	SKEP_REDIRECT_NEIGHBOUR = 3, /* an interface's index; the neighbour's address is filled in */
	SKEP_REDIRECT_DEVICES = 4,   /* how many devices */
	SKEP_REDIRECT_CPU = 5,
	SKEP_REDIRECT_STREAM = 6, /* a socket's cookie */
	SKEP_REDIRECT_SOCKET = 7  /* an AF_XDP socket's number */
};

typedef struct skep_outcome {
	size_t size;
	uint32_t verdict;
	uint32_t redirect; /* enum skep_redirect, if the verdict says so and a helper said where */
	uint64_t target;
	uint32_t ingress; /* 1 if the packet comes in there */
	uint32_t changed; /* 1 if its bytes changed, or their number */
	uint64_t clones;  /* copies that were sent elsewhere */
} skep_outcome;

/* Runs a program on a packet and tells what it did. Any threads, each with its own packet. Fails like
 * skep_program_run. */
int skep_program_outcome(const skep_program *program, skep_packet *packet, skep_outcome *outcome);

/* Metadata of a packet: fields of struct xdp_md and struct __sk_buff. A packet has 256 bytes of headroom and 320 of
 * tailroom for programs. */
typedef struct skep_packet_info {
	size_t size;
	uint64_t tstamp;
	uint64_t hwtstamp;
	uint32_t ingress_ifindex;
	uint32_t ifindex; /* 0: ingress_ifindex */
	uint32_t rx_queue_index;
	uint32_t pkt_type;
	uint32_t mark;
	uint32_t priority;
	uint32_t queue_mapping;
	uint32_t tc_index;
	uint32_t tc_classid;
	uint32_t hash;
	uint32_t wire_len; /* 0: the packet's length */
	uint32_t gso_segs;
	uint32_t gso_size;
	uint32_t vlan_protocol; /* of a tag beside the packet; 0 without one */
	uint32_t vlan_tci;
	uint32_t cb[5];
} skep_packet_info;

/* The packet's metadata, as the host set it or programs left it. One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_packet_info_of(const skep_packet *packet, skep_packet_info *info);

/* Sets the packet's metadata; it stays until it is set again. One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_packet_set_info(skep_packet *packet, const skep_packet_info *info);

/* Makes a context for programs of this program's type, all zeroes: of types that are about sockets, control groups,
 * probes and the like. The caller frees `*context` with skep_context_free. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_context_new(const skep_program *program, skep_context **context);

/* Sets a number by the field's name in C: "major", "user_ip6[2]". One thread at a time. Fails with SKEP_E_ARGUMENT;
 * the message lists the fields. */
int skep_context_set(skep_context *context, const char *field, uint64_t value);

/* A number as the host set it or a program left it. One thread at a time. Fails with SKEP_E_ARGUMENT. */
int skep_context_field(const skep_context *context, const char *field, uint64_t *value);

/* Sets the bytes between the type's addresses of data and its end, which are copied. One thread at a time. Fails with
 * SKEP_E_ARGUMENT. */
int skep_context_set_data(skep_context *context, const void *data, size_t len);

/* Returns those bytes as programs left them, and stores their number in `*len` unless that is NULL. They belong to
 * the context until it is changed, run or freed. For NULL: NULL and 0. */
const uint8_t *skep_context_data(const skep_context *context, size_t *len);

/* Runs a program on a context, which it may change. Any threads, each with its own context. Fails with
 * SKEP_E_ARGUMENT (also for programs of another type), SKEP_E_BUSY, SKEP_E_ENDED. */
int skep_program_run_context(const skep_program *program, skep_context *context, uint64_t *result);

/* Frees a context. NULL does nothing. */
void skep_context_free(skep_context *context);

/* ---- Hooks ---- */

/* Receives the result of a program that a hook runs. 0 goes on to the next program; any other result ends the run. It
 * must not use the packet, buffer or structure of the run. */
typedef int (*skep_result_fn)(void *context, const skep_program *program, uint64_t result);

/* Makes a hook for programs of this runtime. The caller frees `*hook` with skep_hook_free; it lives as long as its
 * links. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_hook_new(const skep_runtime *runtime, skep_hook **hook);

/* Attaches a program behind the others. The program stays alive as long as the link. The caller detaches it with
 * skep_link_free. Any thread, while the hook runs. Fails with SKEP_E_ARGUMENT, also for programs whose arguments
 * differ from the first one's. */
int skep_hook_attach(const skep_hook *hook, const skep_program *program, skep_link **link);

/* Stores how many programs are attached. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_BUSY. */
int skep_hook_count(const skep_hook *hook, size_t *count);

/* Runs the attached programs on a packet, in the order of attachment, each on what the one before left. `each` may
 * be NULL. Programs behind one that fails are not run. Any threads, each with its own packet. Fails like
 * skep_program_run. */
int skep_hook_run(const skep_hook *hook, skep_packet *packet, skep_result_fn each, void *context);

/* The same for programs of type `raw`. Fails like skep_program_run_raw. */
int skep_hook_run_raw(const skep_hook *hook, void *buffer, size_t len, skep_result_fn each, void *context);

/* The same for programs of a type of the host's own; results are int32_t, extended by their sign. Fails like
 * skep_program_run_typed. */
int skep_hook_run_typed(const skep_hook *hook, const skep_type *type, void *value, skep_result_fn each, void *context);

/* Frees a hook. NULL does nothing. */
void skep_hook_free(skep_hook *hook);

/* Replaces the attached program while the hook runs: a run sees the old one or the new one. `old` may be NULL;
 * otherwise the caller frees `*old` with skep_program_free. Any thread. Fails like skep_hook_attach; the old
 * program stays then. */
int skep_link_replace(const skep_link *link, const skep_program *program, skep_program **old);

/* Detaches the program. NULL does nothing. Any thread, while the hook runs; the last use of the link. */
void skep_link_free(skep_link *link);

/* Waits until no thread runs a program that was replaced or removed before this call. Not in a callback. Fails with
 * SKEP_E_ARGUMENT, SKEP_E_BUSY. */
int skep_runtime_synchronize(const skep_runtime *runtime);

/* ---- Statistics and limits ---- */

typedef struct skep_stats {
	size_t size;
	uint64_t run_cnt;
	uint64_t run_time_ns;
	uint64_t misses;    /* runs that did not take place, as Linux's recursion_misses */
	uint64_t median_ns; /* half of the runs took at most this; exact to an eighth. 0 without runs */
	uint64_t p99_ns;    /* 99 of 100 did */
} skep_stats;

typedef struct skep_bucket {
	uint64_t from_ns;
	uint64_t to_ns;
	uint64_t count;
} skep_bucket;

/* Turns statistics on or off (the default). A run takes 100 to 200 ns more if they are on. Any thread. Fails with
 * SKEP_E_ARGUMENT. */
int skep_runtime_enable_stats(const skep_runtime *runtime, int on);

/* The runs of a program while statistics were on. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_program_stats(const skep_program *program, skep_stats *stats);

/* Counts from 0 again. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_program_reset_stats(const skep_program *program);

/* The runs through a link, of all programs that were attached. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_link_stats(const skep_link *link, skep_stats *stats);

/* Copies the buckets of the program's times that are not empty, ascending, at most `*count`, and stores in `*count`
 * how many there are. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_program_histogram(const skep_program *program, skep_bucket *buckets, size_t *count);

/* Metrics of the runtime and of `count` tenants in the text format of Prometheus; `name` is the label of the
 * runtime. The caller frees `*text` with skep_text_free. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_runtime_metrics(const skep_runtime *runtime, const char *name, const skep_tenant *const *tenants,
			 size_t count, char **text);

/* Gives the caller a handle of the program whose runs have this budget instead of the runtime's; 0 for no limit.
 * Freed with skep_program_free. Any thread. Fails with SKEP_E_ARGUMENT, also if the runtime has no budgets. */
int skep_program_with_budget(const skep_program *program, uint64_t units, uint64_t ns, skep_program **limited);

/* Ends all runs of the program, or of the runtime, that are in progress: they fail with SKEP_E_ENDED. Does not wait
 * for that. Any thread. Fails with SKEP_E_ARGUMENT, that of programs also if the runtime has no budgets. */
int skep_program_interrupt(const skep_program *program);
int skep_runtime_interrupt(const skep_runtime *runtime);

/* What a tenant may take at a time; 0 for no limit. */
typedef struct skep_quota {
	size_t size;
	uint64_t map_memory; /* bytes */
	uint64_t maps;
	uint64_t code_memory; /* bytes */
	uint64_t programs;
	uint64_t max_walked; /* instructions that the verifier walks for one program */
} skep_quota;

enum skep_resource {
	SKEP_MAP_MEMORY = 0,
	SKEP_MAPS = 1,
	SKEP_CODE_MEMORY = 2,
	SKEP_PROGRAMS = 3
};

typedef struct skep_usage {
	size_t size;
	uint64_t used;
	uint64_t peak;
	uint64_t limit;   /* UINT64_MAX without one */
	uint64_t refused; /* how often it was refused more */
} skep_usage;

/* Makes a tenant; `quota` may be NULL. The caller frees `*tenant` with skep_tenant_free. Any thread. Fails with
 * SKEP_E_ARGUMENT. */
int skep_tenant_new(const char *name, const skep_quota *quota, skep_tenant **tenant);

/* What a tenant has taken; `resource` is an enum skep_resource. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_tenant_usage(const skep_tenant *tenant, int resource, skep_usage *usage);

/* Changes a limit. What is taken stays taken. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_tenant_set_limit(const skep_tenant *tenant, int resource, uint64_t limit);

/* Frees a tenant's handle. What it has loaded stays charged to it. NULL does nothing. */
void skep_tenant_free(skep_tenant *tenant);

/* ---- More of maps ---- */

typedef struct skep_map_info {
	size_t size;
	uint64_t kind; /* Linux's enum bpf_map_type */
	uint64_t key_size;
	uint64_t value_size; /* of one virtual CPU */
	uint64_t max_entries;
	uint64_t flags;
	uint64_t len; /* elements now */
	uint64_t memory;
	uint64_t frozen;
} skep_map_info;

/* What a map is. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_map_info_of(const skep_map *map, skep_map_info *info);

/* A map's name. Any thread. */
size_t skep_map_name(const skep_map *map, char *buffer, size_t size);

/* Forbids the host to change the map from now on. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_map_freeze(const skep_map *map);

/* A cursor at the beginning of a map. The caller frees `*cursor` with skep_cursor_free. It is used with one map.
 * Fails with SKEP_E_ARGUMENT. */
int skep_cursor_new(skep_cursor **cursor);

/* Whether the walk has reached the end; 1 for NULL. */
int skep_cursor_at_end(const skep_cursor *cursor);

/* Frees a cursor. NULL does nothing. */
void skep_cursor_free(skep_cursor *cursor);

/* Copies the elements from the cursor on, at most `*count`, one behind the other, and stores in `*count` how many;
 * they may be fewer before the end, which skep_cursor_at_end tells. An element that stays during the whole walk is
 * copied once. Any threads, each with its own cursor, while programs run. Fails with SKEP_E_ARGUMENT, and with
 * SKEP_E_FULL if `*count` is too small for a bucket of the table: give more room. */
int skep_map_lookup_batch(const skep_map *map, skep_cursor *cursor, void *keys, void *values, size_t *count);

/* Sets `*count` elements, and stores in `*count` how many were set; if one fails, those before it stay. Any
 * threads. Fails like skep_map_update. */
int skep_map_update_batch(const skep_map *map, const void *keys, const void *values, size_t *count, uint64_t flags);

/* Removes `*count` keys, and stores in `*count` how many were removed. Any threads. Fails like skep_map_delete. */
int skep_map_delete_batch(const skep_map *map, const void *keys, size_t *count);

/* Copies the value of a key and removes it, as one step; of hash tables. Any threads. Fails like skep_map_lookup. */
int skep_map_lookup_and_delete(const skep_map *map, const void *key, size_t key_size, void *value, size_t value_size);

/* Adds a value to a queue, stack or bloom filter. With SKEP_EXIST a full queue or stack drops its oldest value. Any
 * threads. Fails with SKEP_E_ARGUMENT, SKEP_E_FULL, SKEP_E_DENIED. */
int skep_map_push(const skep_map *map, const void *value, size_t size, uint64_t flags);

/* Takes the next value of a queue (the oldest) or stack (the newest), or looks at it. Any threads. Fails with
 * SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND, SKEP_E_DENIED. */
int skep_map_pop(const skep_map *map, void *value, size_t size);
int skep_map_peek(const skep_map *map, void *value, size_t size);

/* Stores in `*has` whether a bloom filter has the value: always 1 for pushed ones, seldom for others. Any threads.
 * Fails with SKEP_E_ARGUMENT. */
int skep_map_contains(const skep_map *map, const void *value, size_t size, int *has);

/* Finds an array of programs by its name. The caller frees `*array` with skep_program_array_free. Any thread. Fails
 * with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_program_array(const skep_module *module, const char *name, skep_program_array **array);

/* How many elements it has, empty ones counted; 0 for NULL. Any thread. */
uint32_t skep_program_array_len(const skep_program_array *array);

/* Sets an element, which tail calls reach from then on. Any threads, while programs run. Fails with
 * SKEP_E_ARGUMENT, also behind the end and for programs whose arguments differ. */
int skep_program_array_set(const skep_program_array *array, uint32_t index, const skep_program *program);

/* Gives the caller the program of an element, freed with skep_program_free. Any thread. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_NOT_FOUND if it is empty. */
int skep_program_array_get(const skep_program_array *array, uint32_t index, skep_program **program);

/* Empties an element. Any threads, while programs run. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND if it is
 * empty. */
int skep_program_array_remove(const skep_program_array *array, uint32_t index);

/* Frees a handle of an array. NULL does nothing. */
void skep_program_array_free(skep_program_array *array);

/* Finds an array or hash table of maps by its name. The caller frees `*outer` with skep_outer_map_free. Any thread.
 * Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_outer_map(const skep_module *module, const char *name, skep_outer_map **outer);

/* Makes a map of the shape that its elements have, which skep_runtime_options.map_memory limits; no tenant is charged
 * for it. The caller frees `*map` with skep_map_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_MEMORY. */
int skep_outer_map_new_inner(const skep_outer_map *outer, const skep_runtime *runtime, skep_map **map);

/* Sets the map of a key (of an array: a uint32_t). Any threads, while programs run. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_OBJECT if it has another shape, SKEP_E_FULL, SKEP_E_DENIED. */
int skep_outer_map_set(const skep_outer_map *outer, const void *key, size_t key_size, const skep_map *map);

/* Gives the caller the map of a key, freed with skep_map_free. Any thread. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_NOT_FOUND. */
int skep_outer_map_get(const skep_outer_map *outer, const void *key, size_t key_size, skep_map **map);

/* Removes the map of a key. Any threads, while programs run. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND,
 * SKEP_E_DENIED. */
int skep_outer_map_remove(const skep_outer_map *outer, const void *key, size_t key_size);

/* Frees a handle of a map of maps. NULL does nothing. */
void skep_outer_map_free(skep_outer_map *outer);

/* Becomes the only producer of a user ring buffer. The map stays as long as its producer. The caller frees
 * `*ringbuf` with skep_user_ringbuf_free. Any thread. Fails with SKEP_E_ARGUMENT (also for other kinds),
 * SKEP_E_BUSY. */
int skep_user_ringbuf_new(const skep_map *map, skep_user_ringbuf **ringbuf);

/* Returns a descriptor for poll(2) and epoll(7) that is readable when there is room. It belongs to the library. -1
 * for NULL. */
int skep_user_ringbuf_fd(const skep_user_ringbuf *ringbuf);

/* Passes a copy of the record to programs (bpf_user_ringbuf_drain). Waits for room, at most `timeout_ms` milliseconds
 * (negative: without a limit). One thread at a time. Fails with SKEP_E_ARGUMENT, SKEP_E_FULL. */
int skep_user_ringbuf_submit(skep_user_ringbuf *ringbuf, const void *data, size_t size, int timeout_ms);

/* Ends the production. NULL does nothing. */
void skep_user_ringbuf_free(skep_user_ringbuf *ringbuf);

/* ---- JSON ---- */

/* The elements of a map by the object's types: [{"key": ..., "value": ...}]; of per-CPU kinds "values". The caller
 * frees `*text` with skep_text_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_NOT_FOUND. */
int skep_module_map_json(const skep_module *module, const char *map, char **text);

/* Sets an element, or the elements of a list, in that form. Any thread. Fails with SKEP_E_ARGUMENT,
 * SKEP_E_NOT_FOUND, and with SKEP_E_OBJECT if the text is not JSON or does not fit; the message names the place,
 * and what came before stays. */
int skep_module_map_insert_json(const skep_module *module, const char *map, const char *text);

/* The value of a variable, and setting it. Otherwise as above. */
int skep_module_variable_json(const skep_module *module, const char *variable, char **text);
int skep_module_set_variable_json(const skep_module *module, const char *variable, const char *text);

/* ---- Worlds ---- */

/* Reads a world from the text of a TOML file: devices, routes, neighbours, sockets, a clock. The caller frees
 * `*world` with skep_world_free. Any thread. Fails with SKEP_E_ARGUMENT, SKEP_E_OBJECT. */
int skep_world_parse(const char *toml, skep_world **world);

/* Places where packets meet programs. */
enum skep_place {
	SKEP_PLACE_XDP = 0,
	SKEP_PLACE_INGRESS = 1, /* tc, for packets that come in */
	SKEP_PLACE_EGRESS = 2   /* tc, for packets that leave */
};

/* Attaches a program to a device; `place` is an enum skep_place. Its runtime must see this world
 * (skep_builder_world). The caller detaches it with skep_link_free. Any thread. Fails with SKEP_E_ARGUMENT. */
int skep_world_attach(const skep_world *world, const skep_program *program, const char *device, int place,
		      skep_link **link);

/* Lets a packet come in at a device, and follows it. `trace` may be NULL; otherwise the caller frees `*trace` with
 * skep_text_free: a line for each program and for the packet's end. Any threads, each with its own packet. Fails with
 * SKEP_E_ARGUMENT, SKEP_E_BUSY. */
int skep_world_inject(const skep_world *world, const char *device, skep_packet *packet, char **trace);

/* Advances the clock of a world that has one of its own (`clock` in its file), and calls the timers of programs
 * that are due. Any thread. Fails with SKEP_E_ARGUMENT if it has none, and with SKEP_E_BUSY while another step is in
 * progress: on another thread, or in a function that a timer's program calls. */
int skep_world_step(const skep_world *world, uint64_t ns);

/* Frees a world; runtimes and links keep it. NULL does nothing. */
void skep_world_free(skep_world *world);

#ifdef __cplusplus
}
#endif

#endif
