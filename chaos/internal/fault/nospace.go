package fault

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// EtcdNoSpace raises the alarm that etcd raises when it has used up its quota: it then
// rejects every request that needs space. Reverting disarms the alarm.
type EtcdNoSpace struct{}

func (EtcdNoSpace) String() string { return "etcd-nospace" }

// Inject implements Fault.
func (EtcdNoSpace) Inject(ctx context.Context, site Site) (func(context.Context) error, error) {
	client := site.Observer()
	now, err := client.Get(ctx, site.Locks(), clientv3.WithCountOnly())
	if err != nil {
		return nil, missed(err)
	}
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: now.Header.MemberId,
	})
	if err != nil {
		return nil, err // not missed: it may have been raised
	}
	return func(ctx context.Context) error {
		_, err := client.AlarmDisarm(ctx, &clientv3.AlarmMember{}) // all there are
		return err
	}, nil
}
