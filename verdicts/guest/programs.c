/* Runs the programs /0, /1, ... with the arguments in /requests (one a line), as the first process of a virtual machine,
 * and prints their output and how each ended. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST 64

int main(void)
{
	static char text[65536], *arguments[MOST + 2];
	char name[16];
	int count = 1, status, out, file;

	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("dev", "/dev", "devtmpfs", 0, NULL);
	mount("tmp", "/tmp", "tmpfs", 0, NULL);
	out = open("/dev/ttyS1", O_RDWR);
	dup2(open("/dev/null", O_RDONLY), 0);
	dup2(out, 1);
	dup2(out, 2);
	file = open("/requests", O_RDONLY);
	if (file >= 0 && read(file, text, sizeof(text) - 1) > 0)
		for (char *line = strtok(text, "\n"); line && count <= MOST; line = strtok(NULL, "\n"))
			arguments[count++] = line;
	for (int program = 0;; program++) {
		snprintf(name, sizeof(name), "/%d", program);
		if (access(name, X_OK))
			break;
		arguments[0] = name;
		if (!fork()) {
			execv(name, arguments);
			_exit(127);
		}
		wait(&status);
		printf("PROGRAM %d ended with %d\n", program, status);
		fflush(stdout);
	}
	printf("DONE\n");
	fflush(stdout);
	/* The line is slow. */
	sleep(1);
	reboot(RB_POWER_OFF);
	return 0;
}
