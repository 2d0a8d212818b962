// Calls a host's functions by their names, also one that the host does not have.

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

struct request {
	__u32 mark;
} __attribute__((preserve_access_index));

extern int request_note(struct request *ctx, const void *bytes, __u64 len) __ksym;
extern int request_missing(struct request *ctx) __ksym __weak;

SEC("request_filter")
int notes(struct request *request)
{
	char text[] = "seen";

	if (request_missing)
		return request_missing(request) > 0;
	return request_note(request, text, 4) > 0;
}

/* A function that is verified alone takes the context too. */
__attribute__((noinline)) int inner(struct request *request)
{
	char text[] = "inner";

	return request_note(request, text, 5);
}

SEC("request_filter/by_function")
int notes_inside(struct request *request)
{
	return inner(request) > 0;
}

char LICENSE[] SEC("license") = "GPL";
