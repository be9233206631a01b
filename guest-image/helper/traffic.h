/* The traffic role's parts: the lane's port, the clients in the workload's network, and who they are. All of it is one
 * thread over one epoll; nothing here waits. */
#ifndef CAPSEM_HELPER_TRAFFIC_H
#define CAPSEM_HELPER_TRAFFIC_H

#include "relay.h"

#define TRAFFIC_PORT 5002
#define FRAME_BYTES_MAX 65536u /* what a length word may say */
#define FRAME_COUNTED 5u       /* type and stream id, which the length counts */
#define FRAME_HEAD 9u
#define MARKER_BYTES 32

enum frame_type { FRAME_HELLO = 1, FRAME_OPEN, FRAME_DATA, FRAME_WINDOW, FRAME_END, FRAME_RESET };
enum reset_code {
  RESET_CANCELLED = 1,
  RESET_REFUSED,
  RESET_NO_SUCH_PORT,
  RESET_TOO_MANY_STREAMS,
  RESET_PROTOCOL_ERROR,
  RESET_INTERNAL,
  RESET_LANE_LOST,
};

/* What a descriptor of the epoll is; in the lower half of its data, the flow's serial number in the upper one. */
enum source { SOURCE_ORDERS = 0, SOURCE_SOCKET, SOURCE_HTTP, SOURCE_PORT, SOURCE_FLOWS };

static inline void put_head(unsigned char *at, uint32_t payload, unsigned char type, uint32_t stream) {
  put_u32(at, FRAME_COUNTED + payload);
  at[4] = type;
  put_u32(at + 5, stream);
}

/* link.c: the one pair of devices between the workload's network and ours, by the same name in both; each function
 * works on the network that we are in */
#define LINK_NAME "tools0"
int make_link(int other_network);             /* its other end is there; both are down */
int raise_link(uint32_t own, uint32_t other); /* with an address, and no way but to the other's */
int refuse_all_but_tcp(uint32_t to);
int write_network_setting(const char *setting, const char *value); /* below /proc/sys/net */

/* network.c */
struct doors {
  int socket;      /* listens at the abstract one of the thin client, in the workload's network */
  int address;     /* listens in ours */
  int connections; /* the table of those in the workload's network */
};
int open_doors(int init, struct doors *doors, struct failure *failure);

/* peer.c: the names of those who connect, as good as they are to be had */
void peer_init(int connections);
void name_of_socket(int fd, char name[PROCESS_NAME_BYTES + 1]);
void name_of_connection(int fd, char name[PROCESS_NAME_BYTES + 1]);

/* flow.c: one client each. It waits for a lane, or is a stream of the one that runs. A fault is what the host did
 * against the protocol, in words; NULL: nothing. */
void flows_init(int epoll);
bool flows_are_full(void);
void flow_accept(int fd, bool is_tcp, const char *name, uint64_t now);
void flow_event(uint32_t index, uint32_t serial, uint32_t events, uint64_t now);
bool flows_wait(void);
void flows_start(void);
void flows_drop(void); /* the lane is over: its streams are, those that wait are not */
void flows_expire(uint64_t now);
uint64_t flows_deadline(void);
const char *flow_take(unsigned char type, uint32_t stream, const unsigned char *payload, uint32_t length);
size_t flows_fill(unsigned char *at, size_t room);

/* lane.c */
void lane_init(const char *path, int epoll);
int lane_begin(uint32_t generation, const unsigned char marker[MARKER_BYTES], uint64_t now);
bool lane_runs(void);
void lane_event(uint32_t events, uint64_t now);
void lane_work(uint64_t now); /* after events: what is to be sent, opened, given up */
uint64_t lane_deadline(void);

#endif
