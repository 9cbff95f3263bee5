/*
 * /bin/sh of the images of the conformance tests. The tests compare messages of busybox, and they set variables such as
 * `p-data-1`, which Debian's busybox does not hand on and bash does. Its shell also prefers the `nc` that is part of it
 * to the one in the path, whose flags tests use in the image agnhost.
 */
#include <ctype.h>
#include <unistd.h>

extern char **environ;

/* Whether busybox hands the variable on. */
static int plain(const char *variable)
{
	if (*variable != '_' && !isalpha((unsigned char)*variable))
		return 0;
	for (; *variable != '\0' && *variable != '='; variable++)
		if (*variable != '_' && !isalnum((unsigned char)*variable))
			return 0;
	return 1;
}

int main(int argc, char **argv)
{
	const char *shell = access("/agnhost", X_OK) == 0 ? "/bin/bash-static" : "/bin/busybox";

	(void)argc;
	for (char **variable = environ; *variable != NULL; variable++)
		if (!plain(*variable))
			shell = "/bin/bash-static";
	execv(shell, argv);
	return 127;
}
