/*
 * How many octets a control message of the acyclic-overlay work has as a serialised Java object.
 *
 *     java benchmarks/serialised_messages.java
 *
 * The classes and what they carry are those of its table 5.2; names of fields and the form of identifiers
 * are ours. `lab/published/tree` counts messages as objects of 500 octets by this (most are beacons), beside the judged rows.
 */

import java.io.ByteArrayOutputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.net.InetAddress;
import java.util.Vector;

public class SerialisedMessages {
    public static void main(String[] arguments) throws Exception {
        for (int receivers = 0; receivers <= 4; receivers++) {
            ManetOverlayMgrMessage[] all = {
                new ManetOverlayMgrRREQ(), new ManetOverlayMgrRREP(), new ManetOverlayMgrMACT(),
                new ManetOverlayMgrGRPH(), new ManetOverlayMgrBCN(),
            };
            StringBuilder line = new StringBuilder(receivers + " receivers:");
            for (ManetOverlayMgrMessage message : all) {
                for (int node = 0; node < receivers; node++) {
                    message.logicalReceivers.add("10.0." + node + "." + node + ":1131997912345");
                }
                ByteArrayOutputStream octets = new ByteArrayOutputStream();
                new ObjectOutputStream(octets).writeObject(message);
                String name = message.getClass().getName().substring("ManetOverlayMgr".length());
                line.append(' ').append(name).append(' ').append(octets.size());
            }
            System.out.println(line);
        }
    }
}

abstract class ManetOverlayMgrMessage implements Serializable {
    int type, timeToLive, hopCount;
    String sender = "10.0.1.1:1131997912345";
    String logicalSender = "10.0.2.2:1131997912345";
    String receiver = "10.0.3.3:1131997912345";
    Vector<String> logicalReceivers = new Vector<String>();
}

class ManetOverlayMgrRREQ extends ManetOverlayMgrMessage {
    int broadcastId, groupSequenceNumber;
    boolean overlayLimited, reconnect;
}

class ManetOverlayMgrRREP extends ManetOverlayMgrMessage {
    int broadcastId, groupSequenceNumber;
}

class ManetOverlayMgrMACT extends ManetOverlayMgrMessage {
    InetAddress address = InetAddress.getLoopbackAddress();
}

class ManetOverlayMgrGRPH extends ManetOverlayMgrMessage {
    int groupSequenceNumber;
}

class ManetOverlayMgrBCN extends ManetOverlayMgrMessage {
}
