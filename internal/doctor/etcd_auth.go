package doctor

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// checkAuth reports an etcd that any client on the network may write to.
func checkAuth(ctx context.Context, s *target) ([]Finding, error) {
	l := s.etcd
	if l.Client == nil || l.silent || l.CertificateAuth {
		return nil, nil
	}
	request, cancel := l.within(ctx)
	defer cancel()
	status, err := l.Client.AuthStatus(request)
	switch {
	case errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrPermissionDenied):
		return nil, nil // it is on
	case err != nil || status.Enabled:
		return nil, err
	}
	addresses := slices.Clone(l.Client.Endpoints())
	if members, err := l.Client.MemberList(request); err == nil {
		for _, m := range members.Members {
			addresses = append(addresses, m.ClientURLs...)
		}
	}
	for _, address := range addresses {
		if !isLoopback(address) {
			return []Finding{l.found(etcdAuthOff, "authentication is off, and etcd is reached at "+address)}, nil
		}
	}
	return nil, nil
}

// isLoopback reports whether an endpoint is surely on this machine alone.
func isLoopback(endpoint string) bool {
	host := endpoint
	if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
		host = u.Host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
