package workload

import "errors"

// ErrConfig: a Config, or how the binary calls package chaos, is not as it has to be.
var ErrConfig = errors.New("chaos: invalid configuration")

// ErrWorkload: a run could not take place because of the Workload: its Prepare
// failed, or its Operate can't run under a control.
var ErrWorkload = errors.New("chaos: the workload can't be run")
