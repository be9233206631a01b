#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define END_OF_INPUT_DEFAULT 4 /* ^D */

/* Called inside the workload root, whose /dev belongs to a hostile root: what is opened must
 * not be followed, must not block, and must prove to be a terminal master by its ioctls. */
int open_terminal(const struct request *request, int *master, int *slave) {
  int unlocked = 0;
  struct winsize size = {.ws_col = (unsigned short)request->cols, .ws_row = (unsigned short)request->rows};
  *master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (*master < 0)
    return -1;
  if (ioctl(*master, TIOCSPTLCK, &unlocked) != 0 || ioctl(*master, TIOCSWINSZ, &size) != 0)
    return -1;
  *slave = ioctl(*master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (*slave < 0)
    return -1;
  return fchown(*slave, request->uid, (gid_t)-1);
}

int resize_terminal(int master, uint16_t cols, uint16_t rows) {
  struct winsize size = {.ws_col = cols, .ws_row = rows};
  return ioctl(master, TIOCSWINSZ, &size);
}

char end_of_input_of(int master) {
  struct termios settings;
  if (tcgetattr(master, &settings) != 0 || settings.c_cc[VEOF] == 0)
    return END_OF_INPUT_DEFAULT;
  return (char)settings.c_cc[VEOF];
}
