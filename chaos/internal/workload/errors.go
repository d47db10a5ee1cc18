package workload

import "errors"

// ErrConfig: a Config is invalid, or the binary doesn't call package chaos as it must.
var ErrConfig = errors.New("chaos: invalid configuration")

// ErrWorkload: a run was not possible because of the Workload: its Prepare failed, or its
// Operate can't run under a control.
var ErrWorkload = errors.New("chaos: the workload can't be run")
