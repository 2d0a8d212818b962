/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Probes that need no types of the kernel: functions by their registers, events by their records, samples of a profiler.
 */
#include "verdicts.h"

/* Registers as probes find them, on a machine like the one whose verdicts stand here. */
struct registers {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
	unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};

struct open_event {
	__u64 common;
	__u64 number;
	__u64 args[6];
};

struct start {
	__u64 at;
	char path[64];
	__u32 flags;
};

struct report {
	__u64 took;
	__s64 result;
	__u32 tgid, tid, uid;
	char command[16], path[64];
};

struct key {
	__u32 tgid;
	__s32 user, kernel;
};

MAP(HASH, 10240, __u64, struct start) starts SEC(".maps");
MAP(PERCPU_ARRAY, 1, __u32, struct report) buffer SEC(".maps");
MAP(HASH, 64, __u32, __u64[27]) histograms SEC(".maps");
MAP(HASH, 10240, struct key, __u64) counts SEC(".maps");
MAP(STACK_TRACE, 1024, __u32, __u64[127]) stacks SEC(".maps");
MAP(PERF_EVENT_ARRAY, 0, __u32, __u32) reports SEC(".maps");
MAP(CGROUP_ARRAY, 1, __u32, __u32) groups SEC(".maps");

const volatile __u32 only_uid = -1;
const volatile char only_prefix[8] = "";
static const __u64 zeroes[27];

SEC("tracepoint/syscalls/sys_enter_openat")
int enter(struct open_event *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct start start = { .at = bpf_ktime_get_ns(), .flags = ctx->args[2] };
	long length;

	if (only_uid != (__u32)-1 && only_uid != (__u32)bpf_get_current_uid_gid())
		return 0;
	if (bpf_current_task_under_cgroup(&groups, 0) == 0)
		return 0;
	length = bpf_probe_read_user_str(start.path, sizeof(start.path), (void *)ctx->args[1]);
	if (length <= 0)
		return 0;
	for (int i = 0; i < 8; i++) {
		if (!only_prefix[i])
			break;
		if (start.path[i] != only_prefix[i])
			return 0;
	}
	bpf_map_update_elem(&starts, &id, &start, BPF_ANY);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_openat")
int leave(struct open_event *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct start *start = bpf_map_lookup_elem(&starts, &id);
	__u32 zero = 0;
	struct report *report = bpf_map_lookup_elem(&buffer, &zero);

	if (!start || !report)
		return 0;
	report->took = bpf_ktime_get_ns() - start->at;
	report->result = ctx->args[0];
	report->tgid = id >> 32;
	report->tid = id;
	report->uid = bpf_get_current_uid_gid();
	bpf_get_current_comm(report->command, sizeof(report->command));
	__builtin_memcpy(report->path, start->path, sizeof(report->path));
	bpf_perf_event_output(ctx, &reports, BPF_F_CURRENT_CPU, report, sizeof(*report));
	bpf_map_delete_elem(&starts, &id);
	return 0;
}

SEC("kprobe/vfs_write")
int written(struct registers *ctx)
{
	__u64 size = ctx->dx, *slots;
	__u32 tgid = bpf_get_current_pid_tgid() >> 32, slot = 0;

	slots = bpf_map_lookup_elem(&histograms, &tgid);
	if (!slots) {
		bpf_map_update_elem(&histograms, &tgid, zeroes, BPF_NOEXIST);
		slots = bpf_map_lookup_elem(&histograms, &tgid);
		if (!slots)
			return 0;
	}
	for (; size > 1 && slot < 26; slot++)
		size >>= 1;
	__sync_fetch_and_add(&slots[slot], 1);
	return 0;
}

SEC("kretprobe/vfs_write")
int write_failed(struct registers *ctx)
{
	if ((long)ctx->ax < 0)
		bpf_printk("failed with %ld at %lx", ctx->ax, ctx->ip);
	return 0;
}

SEC("uprobe")
int line(struct registers *ctx)
{
	char text[80];
	long length = bpf_probe_read_user_str(text, sizeof(text), (void *)ctx->ax);

	if (length <= 0)
		return 0;
	barrier_var(length);
	if (length <= (long)sizeof(text))
		bpf_perf_event_output(ctx, &reports, BPF_F_CURRENT_CPU, text, length);
	return 0;
}

/* The compiler makes one comparison of the two, less one, of which Linux learns nothing for the number itself. */
SEC("uprobe")
int line_by_one_comparison(struct registers *ctx)
{
	char text[80];
	long length = bpf_probe_read_user_str(text, sizeof(text), (void *)ctx->ax);

	if (length > 0 && length <= (long)sizeof(text))
		bpf_perf_event_output(ctx, &reports, BPF_F_CURRENT_CPU, text, length);
	return 0;
}

SEC("perf_event")
int profile(struct bpf_perf_event_data *ctx)
{
	struct key key = { .tgid = bpf_get_current_pid_tgid() >> 32 };
	__u64 one = 1, *count;

	if (!key.tgid)
		return 0;
	key.kernel = bpf_get_stackid(ctx, &stacks, BPF_F_FAST_STACK_CMP);
	key.user = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	count = bpf_map_lookup_elem(&counts, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&counts, &key, &one, BPF_NOEXIST);
	return 0;
}

SEC("raw_tracepoint/sys_enter")
int entered(struct bpf_raw_tracepoint_args *ctx)
{
	struct registers registers;
	__u32 zero = 0;
	struct report *report;

	if (ctx->args[1] != 257)
		return 0;
	if (bpf_probe_read_kernel(&registers, sizeof(registers), (void *)ctx->args[0]))
		return 0;
	report = bpf_map_lookup_elem(&buffer, &zero);
	if (report)
		report->result = bpf_probe_read_user_str(report->path, sizeof(report->path), (void *)registers.si);
	return 0;
}

/* A list of strings in user space, one after the other into one buffer. */
SEC("kprobe/do_execve")
int arguments(struct registers *ctx)
{
	static char all[1024];
	__u32 used = 0;

	for (int i = 0; i < 12; i++) {
		const char *argument = 0;
		long length;

		bpf_probe_read_user(&argument, sizeof(argument), (void *)(ctx->si + i * 8));
		if (!argument || used > sizeof(all) - 64)
			break;
		length = bpf_probe_read_user_str(&all[used], 64, argument);
		if (length < 0 || length > 64)
			break;
		used += length;
	}
	bpf_perf_event_output(ctx, &reports, BPF_F_CURRENT_CPU, all, used & 1023);
	return 0;
}

/* Nobody looked at how long it was. */
SEC("uprobe")
int bad_length(struct registers *ctx)
{
	char text[80];
	long length = bpf_probe_read_user_str(text, sizeof(text), (void *)ctx->ax);

	bpf_perf_event_output(ctx, &reports, BPF_F_CURRENT_CPU, text, length);
	return 0;
}

/* Addresses of others are copied from, not read. */
SEC("kprobe/vfs_write")
int bad_direct_read(struct registers *ctx)
{
	return *(volatile char *)ctx->si;
}

/* Registers are there to look at. */
SEC("kprobe/vfs_write")
int bad_register_written(struct registers *ctx)
{
	ctx->ax = -1;
	return 0;
}

/* Behind the last register there is nothing. */
SEC("kprobe/vfs_write")
int bad_register(struct registers *ctx)
{
	return ((unsigned long *)ctx)[64];
}

/* Packets are not what tracing programs have. */
SEC("kprobe/vfs_write")
int bad_helper(struct registers *ctx)
{
	char byte;

	return bpf_skb_load_bytes(ctx, 0, &byte, 1);
}

/* The compiler counts what one function needs, and verifiers what all of a chain do. */
static __noinline int copied(const void *from)
{
	volatile char path[448];

	bpf_probe_read_user_str((void *)path, sizeof(path), from);
	return path[3];
}

SEC("kprobe/vfs_write")
int bad_path_in_the_stack(struct registers *ctx)
{
	volatile char command[96];

	bpf_get_current_comm((void *)command, sizeof(command));
	return copied((void *)ctx->si) + command[2];
}

/* The table of a map of stacks is for the helper that takes them. */
SEC("perf_event")
int bad_map_of_stacks(struct bpf_perf_event_data *ctx)
{
	return bpf_get_stackid(ctx, &counts, 0);
}
