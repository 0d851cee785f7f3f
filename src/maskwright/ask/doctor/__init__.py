"""Problems of labelled data that are found before any training: a report and what to do first."""
