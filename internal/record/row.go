package record

// Fence is a row of the table resource.
type Fence struct {
	Number    int32  `json:"number"`
	Name      string `json:"name"`
	Timeline  int32  `json:"timeline"`
	Epoch     int64  `json:"epoch"`
	Token     int64  `json:"token"`
	PrevToken int64  `json:"prev_token"`
	ClaimSeq  int64  `json:"claim_seq"`
	ClaimedAt Time   `json:"claimed_at"`
	Seq       int64  `json:"seq"`
	Tx        int64  `json:"tx,string"`
	Hash      Hash   `json:"hash"`
	Holder    string `json:"holder"`
}

// Checkpoint is a row of the table checkpoint.
type Checkpoint struct {
	First    int64 `json:"first"`
	Hash     Hash  `json:"hash"` // of the entry before First
	PrunedAt Time  `json:"pruned_at"`
}

// Hold is a row of the table hold.
type Hold struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Role   string `json:"role"`
	At     Time   `json:"at"`
}

// Rejection is a row of the table rejection.
type Rejection struct {
	ID            int64  `json:"id"`
	Resource      string `json:"resource"`
	Reason        string `json:"reason"`
	Stage         string `json:"stage"`
	Epoch         int64  `json:"epoch"`
	Token         int64  `json:"token"`
	Holder        string `json:"holder"`
	CurrentEpoch  int64  `json:"current_epoch"`
	CurrentToken  int64  `json:"current_token"`
	CurrentHolder string `json:"current_holder"`
	CurrentSince  *Time  `json:"current_since,omitempty"`
	Count         int64  `json:"count"`
	FirstAt       Time   `json:"first_at"`
	LastAt        Time   `json:"last_at"`
}

// Operation is a row of the table operation, without the result, which is the caller's data.
type Operation struct {
	Resource int32  `json:"resource"`
	Key      string `json:"key"`
	Request  Hash   `json:"request"`
	Tx       int64  `json:"tx,string"`
	At       Time   `json:"at"`
}

// Setting has the columns of the table setting that bound claims.
type Setting struct {
	Epoch        int64 `json:"epoch"`
	Token        int64 `json:"token"`
	MaxTokenJump int64 `json:"max_token_jump"`
}
