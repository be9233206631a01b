#include "traffic.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE_BYTES 512
#define MAC_BYTES 6
#define TCP_PRIORITY 100 /* behind what is local, before every table */

/* Of both ends: without address resolution, which nobody then can answer falsely, a frame goes to the sender's own. */
static const unsigned char mac[MAC_BYTES] = {0x02, 'c', 'a', 'p', 's', 'e'};

struct message {
  struct nlmsghdr head;
  unsigned char rest[MESSAGE_BYTES];
};

static void *add_bytes(struct message *message, size_t length) {
  void *at = (unsigned char *)message + NLMSG_ALIGN(message->head.nlmsg_len);
  message->head.nlmsg_len = NLMSG_ALIGN(message->head.nlmsg_len) + (uint32_t)length;
  return memset(at, 0, length);
}

static struct rtattr *add_attribute(struct message *message, unsigned short type, const void *value, size_t length) {
  struct rtattr *attribute = add_bytes(message, RTA_LENGTH(length));
  attribute->rta_type = type;
  attribute->rta_len = (unsigned short)RTA_LENGTH(length);
  if (length > 0)
    memcpy(RTA_DATA(attribute), value, length);
  return attribute;
}

/* What was added since is inside of it. */
static void close_attribute(const struct message *message, struct rtattr *attribute) {
  attribute->rta_len = (unsigned short)((const unsigned char *)message + message->head.nlmsg_len - (unsigned char *)attribute);
}

/* In the network that we are in. */
static int ask_kernel(struct message *message, unsigned short type, unsigned short flags) {
  struct {
    struct nlmsghdr head;
    struct nlmsgerr error;
    unsigned char rest[MESSAGE_BYTES];
  } answered;
  message->head.nlmsg_type = type;
  message->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0)
    return -1;
  ssize_t got = send(fd, message, message->head.nlmsg_len, 0) < 0 ? -1 : recv(fd, &answered, sizeof answered, 0);
  int saved = errno;
  close(fd);
  if (got < 0)
    return errno = saved, -1;
  if ((size_t)got < sizeof answered.head + sizeof answered.error || answered.head.nlmsg_type != NLMSG_ERROR)
    return errno = EPROTO, -1;
  return answered.error.error == 0 ? 0 : (errno = -answered.error.error, -1);
}

/* Its own and its other end: that of a relay that ended may be in the way for a while. */
static int remove_link(void) {
  struct message message = {.head.nlmsg_len = NLMSG_LENGTH(0)};
  add_bytes(&message, sizeof(struct ifinfomsg));
  add_attribute(&message, IFLA_IFNAME, LINK_NAME, sizeof LINK_NAME);
  return ask_kernel(&message, RTM_DELLINK, 0) == 0 || errno == ENODEV ? 0 : -1;
}

int make_link(int other_network) {
  struct message message = {.head.nlmsg_len = NLMSG_LENGTH(0)};
  if (remove_link() != 0)
    return -1;
  add_bytes(&message, sizeof(struct ifinfomsg));
  add_attribute(&message, IFLA_IFNAME, LINK_NAME, sizeof LINK_NAME);
  add_attribute(&message, IFLA_ADDRESS, mac, sizeof mac);
  struct rtattr *info = add_attribute(&message, IFLA_LINKINFO, NULL, 0);
  add_attribute(&message, IFLA_INFO_KIND, "veth", strlen("veth"));
  struct rtattr *data = add_attribute(&message, IFLA_INFO_DATA, NULL, 0);
  struct rtattr *peer = add_attribute(&message, VETH_INFO_PEER, NULL, 0);
  add_bytes(&message, sizeof(struct ifinfomsg));
  add_attribute(&message, IFLA_IFNAME, LINK_NAME, sizeof LINK_NAME);
  add_attribute(&message, IFLA_ADDRESS, mac, sizeof mac);
  add_attribute(&message, IFLA_NET_NS_FD, &other_network, sizeof other_network);
  close_attribute(&message, peer);
  close_attribute(&message, data);
  close_attribute(&message, info);
  return ask_kernel(&message, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
}

static int add_address(unsigned index, uint32_t own, uint32_t other) {
  struct message message = {.head.nlmsg_len = NLMSG_LENGTH(0)};
  uint32_t local = htonl(own), remote = htonl(other);
  struct ifaddrmsg *address = add_bytes(&message, sizeof *address);
  *address = (struct ifaddrmsg){
      .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_scope = RT_SCOPE_LINK, .ifa_index = index};
  add_attribute(&message, IFA_LOCAL, &local, sizeof local);
  add_attribute(&message, IFA_ADDRESS, &remote, sizeof remote);
  return ask_kernel(&message, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
}

static int add_rule(uint32_t priority, uint32_t to, unsigned char action, unsigned char protocol) {
  struct message message = {.head.nlmsg_len = NLMSG_LENGTH(0)};
  uint32_t address = htonl(to);
  struct fib_rule_hdr *rule = add_bytes(&message, sizeof *rule);
  *rule = (struct fib_rule_hdr){
      .family = AF_INET, .dst_len = 32, .action = action, .table = action == FR_ACT_TO_TBL ? RT_TABLE_MAIN : RT_TABLE_UNSPEC};
  add_attribute(&message, FRA_PRIORITY, &priority, sizeof priority);
  add_attribute(&message, FRA_DST, &address, sizeof address);
  if (protocol != 0)
    add_attribute(&message, FRA_IP_PROTO, &protocol, sizeof protocol);
  return ask_kernel(&message, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL) == 0 || errno == EEXIST ? 0 : -1;
}

/* Only TCP is answered there: all else has no way, so that who tries is told at once. */
int refuse_all_but_tcp(uint32_t to) {
  if (add_rule(TCP_PRIORITY, to, FR_ACT_TO_TBL, IPPROTO_TCP) != 0)
    return -1;
  return add_rule(TCP_PRIORITY + 1, to, FR_ACT_UNREACHABLE, 0);
}

int write_network_setting(const char *setting, const char *value) {
  char path[96];
  snprintf(path, sizeof path, "/proc/sys/net/%s", setting);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  int result = write_all(fd, value, strlen(value));
  int saved = errno;
  close(fd);
  errno = saved;
  return result;
}

int raise_link(uint32_t own, uint32_t other) {
  struct ifreq request = {.ifr_name = LINK_NAME, .ifr_flags = IFF_UP | IFF_NOARP};
  unsigned index = if_nametoindex(LINK_NAME);
  /* A kernel without IPv6 has no such setting, and nothing to switch off. */
  if (index == 0 || (write_network_setting("ipv6/conf/" LINK_NAME "/disable_ipv6", "1") != 0 && errno != ENOENT) ||
      add_address(index, own, other) != 0)
    return -1;
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  int result = ioctl(fd, SIOCSIFFLAGS, &request);
  int saved = errno;
  close(fd);
  errno = saved;
  return result;
}
