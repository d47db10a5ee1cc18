package review

import (
	"github.com/fencekit/fencekit/storage"
)

// reasonWords explain a reason.
type reasonWords struct {
	because string // completes "was rejected because"; {holder} had the resource, since {before}
	meaning string
}

var reasons = map[storage.Reason]reasonWords{
	storage.ReasonStale: {
		"{holder} had claimed the resource{before}",
		"The lock had passed to a newer holder. The older one didn't know that yet, as happens after a long pause or a lost connection. " +
			"If its log says \"tokens went back\", it did know: the operators must raise the lock service's epoch.",
	},
	storage.ReasonOvertaken: {
		"another transaction of the same holder had committed first",
		"Two transactions of one holder ran at the same time. One committed; the other rested on what was true before that, and was rejected. It can be run again.",
	},
	storage.ReasonCollision: {
		"{holder} had claimed the resource with the very same token{before}",
		"The lock service gave one token to two holders, as after a restore from a backup, or when two lock services are used with one database. Only the first to claim can write. The operators have to raise the epoch of the lock service.",
	},
	storage.ReasonEpochBehind: {
		"its epoch has ended",
		"Operators raise the epoch after they restore the lock service. From then on, grants of earlier epochs are rejected.",
	},
	storage.ReasonTokensWentBack: {
		"{holder}, with a higher token, was known to have claimed before this token was asked for",
		"The lock service gave a lower token after a higher one, as after a restore from a backup. The operators have to raise its epoch.",
	},
	storage.ReasonTokenJump: {
		"its token or epoch was far above any that the database had seen",
		"To accept one absurdly high number would lock everyone else out of the resource for good. The operators have to find out where the number came from.",
	},
	storage.ReasonWentBack: {
		"the database had lost a state that the holder had seen",
		"The database was put back to an older state: it was restored from a backup, or failed over to a standby that lacked the newest transactions. The holder has to begin anew.",
	},
	storage.ReasonFailedOver: {
		"the database had failed over since the holder claimed",
		"What the holder had read before the failover may be gone, so nothing may be written on the strength of it. The holder has to claim and read again.",
	},
}

var stages = map[storage.Stage]string{
	storage.StageClaim: "To take over the resource. It was rejected before it could read or write anything.",
	storage.StageBegin: "To begin a transaction. It was rejected before it could read or write anything.",
	storage.StageRun:   "To go on with a transaction that it had begun. The database had ended the transaction, and has discarded what was written in it.",
	storage.StageSeal:  "To commit a transaction. The database rejected that, and has discarded what was written in it.",
	storage.StageCheck: "To read, and no more. What it had read was no longer the present state when it had ended, so it was given no answer.",
}

// explainReason returns words for a reason, also for one that this version doesn't know.
func explainReason(r storage.Reason) reasonWords {
	if words, ok := reasons[r]; ok {
		return words
	}
	return reasonWords{"of a reason that this version doesn't know (" + string(r) + ")", "A newer version of fencectl can explain it."}
}

func explainStage(s storage.Stage) string {
	if words, ok := stages[s]; ok {
		return words
	}
	return "Something that this version doesn't know (" + string(s) + ")."
}
